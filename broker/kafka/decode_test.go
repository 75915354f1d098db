package kafkabroker

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// FuzzDecode checks that any record is either a message, or is delivered with its content, its topic, and its key.
func FuzzDecode(f *testing.F) {
	f.Add("ce_specversion", "1.0", "ce_id", "1", []byte("order/1"), []byte("{}"))
	f.Add("content-type", "application/cloudevents+json", "ce_id", "", []byte{0xff}, []byte(`{"specversion":"1.0"`))
	f.Fuzz(func(t *testing.T, first, a, second, b string, key, value []byte) {
		c := SubscriberConfig{Decode: decode}
		d := c.deliver(&kgo.Record{
			Topic: "orders", Key: key, Value: value,
			Headers: []kgo.RecordHeader{{Key: first, Value: []byte(a)}, {Key: second, Value: []byte(b)}},
		})
		if d.Message == nil {
			t.Fatalf("no message, error %v", d.Err)
		}
		if d.Err != nil && (!bytes.Equal(d.Raw, value) || d.Message.Topic == "" || d.Message.Key == "" && len(key) > 0) {
			t.Errorf("error %v: raw %q, message %+v", d.Err, d.Raw, d.Message)
		}
	})
}
