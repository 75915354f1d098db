package rabbitmqbroker

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// FuzzDecode checks that any delivery is a message, or what could be read of it, whatever the types of its headers are.
func FuzzDecode(f *testing.F) {
	f.Add("cloudEvents_specversion", "1.0", "cloudEvents:id", int64(1), "application/json", []byte("{}"))
	f.Add("cloudEvents_time", "", "x", int64(-1), "application/cloudevents+json", []byte(`{"specversion":"1.0"`))
	f.Fuzz(func(t *testing.T, first, text, second string, n int64, contentType string, body []byte) {
		for _, value := range []any{n, int8(n), n%2 == 0, body, time.Unix(n, n), amqp.Table{text: n}, nil, float64(n)} {
			m, err := Decode(amqp.Delivery{ContentType: contentType, Headers: amqp.Table{first: text, second: value}, Body: body})
			if m == nil {
				t.Fatalf("no message, error %v", err)
			}
		}
	})
}
