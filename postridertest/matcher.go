package postridertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/postrider/postrider"
)

// Matcher is a condition on a published message, see Key, Header, Payload and Where.
type Matcher struct {
	// differs says why a message, whose data was decoded, does not match; "" if it does.
	differs func(m *postrider.Message, data any) string
}

// Key matches messages with this key.
func Key(key string) Matcher {
	return text("key", key, func(m *postrider.Message) string { return m.Key })
}

// Header matches messages whose header has this value. "" matches messages without the header, too.
func Header(name, value string) Matcher {
	return text("header "+name, value, func(m *postrider.Message) string { return m.Headers[name] })
}

// Payload matches messages with this content: a []byte or string is compared with the payload, anything else with the decoded
// data. JSON is compared by its values, so that spaces and the order of names do not matter.
func Payload(want any) Matcher {
	return Matcher{func(m *postrider.Message, data any) string {
		var same bool
		switch want := want.(type) {
		case []byte:
			same = samePayload(m.Payload, want)
		case string:
			same = samePayload(m.Payload, []byte(want))
		default:
			same = sameData(m.ContentType, data, want)
		}
		if same {
			return ""
		}
		return fmt.Sprintf("the payload is not %s", shown(want))
	}}
}

// Where matches messages whose data meets a condition.
func Where[T any](holds func(data T) bool) Matcher {
	return Matcher{func(_ *postrider.Message, data any) string {
		typed, ok := data.(T)
		switch {
		case !ok:
			return fmt.Sprintf("Where expects %s, the definition has %T", reflect.TypeFor[T](), data)
		case !holds(typed):
			return "the condition of Where does not hold"
		}
		return ""
	}}
}

func text(what, want string, of func(m *postrider.Message) string) Matcher {
	return Matcher{func(m *postrider.Message, _ any) string {
		if got := of(m); got != want {
			return fmt.Sprintf("%s is %q, want %q", what, got, want)
		}
		return ""
	}}
}

func samePayload(got, want []byte) bool {
	a, errA := decoded(got)
	b, errB := decoded(want)
	if errA != nil || errB != nil {
		return bytes.Equal(got, want)
	}
	return reflect.DeepEqual(a, b)
}

// sameData compares values that were decoded from JSON by their JSON: times and empty slices that are equal there may differ in Go.
func sameData(contentType string, got, want any) bool {
	if contentType != postrider.DefaultContentType || reflect.TypeOf(got) != reflect.TypeOf(want) {
		return reflect.DeepEqual(got, want)
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func decoded(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func shown(v any) string {
	switch v := v.(type) {
	case []byte, string:
		return fmt.Sprintf("%.200s", v)
	default:
		return fmt.Sprintf("%.200s", fmt.Sprintf("%+v", v))
	}
}
