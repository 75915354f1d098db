package rabbitmqbroker

import (
	"encoding/base64"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

// Decode returns the message of a delivery. The delivery is a CloudEvent in binary mode, with attributes in AMQP headers
// with the prefix cloudEvents_ or cloudEvents: (AMQP binding of CloudEvents), or a complete CloudEvent in JSON. With an error,
// it returns what could be read.
func Decode(d amqp.Delivery) (*postrider.Message, error) {
	return cloudEvents.Decode(headersOf(d), d.Body)
}

// headersOf yields the headers that can belong to a CloudEvent, as text.
func headersOf(d amqp.Delivery) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if d.ContentType != "" && !yield(contentTypeHeader, d.ContentType) {
			return
		}
		for name, value := range d.Headers {
			text, ok := textOf(value)
			if name == contentTypeHeader || !ok {
				continue
			}
			if attribute, found := strings.CutPrefix(name, "cloudEvents:"); found {
				name = cloudEvents.Prefix + attribute
			}
			if !yield(name, text) {
				return
			}
		}
	}
}

// textOf returns the canonical text of a header value; false for types that CloudEvents does not have.
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int8, int16, int32, int64, uint8, uint16, uint32:
		return fmt.Sprint(v), true
	case []byte:
		return base64.StdEncoding.EncodeToString(v), true
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), true
	default:
		return "", false
	}
}
