package kafkabroker

import (
	"errors"
	"fmt"
	"runtime/debug"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// deliver creates a delivery of a record, without its position.
func (c *SubscriberConfig) deliver(r *kgo.Record) *postrider.Delivery {
	d := &postrider.Delivery{}
	d.Message, d.Err = c.decode(r)
	if d.Err != nil {
		d.Raw = r.Value
		if d.Message == nil {
			d.Message, _ = decode(r) // the error is that of the configured function
		}
		if d.Message.Topic == "" {
			d.Message.Topic = Topic(c.Prefix, r.Topic)
		}
		if d.Message.Key == "" {
			d.Message.Key = string(r.Key)
		}
	}
	return d
}

// decode calls the configured function. A panic, or no message, is an error of the record.
func (c *SubscriberConfig) decode(r *kgo.Record) (m *postrider.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			m, err = nil, fmt.Errorf("decode: panic: %v\n%s", v, debug.Stack())
		}
	}()
	if m, err = c.Decode(r); m == nil && err == nil {
		err = errors.New("decode: the function returned neither a message nor an error")
	}
	if err != nil && err.Error() == "" { // a method of the error may panic as well
		err = fmt.Errorf("decode: error of type %T without a text", err)
	}
	return m, err
}

// decode decodes a record. With an error, it returns what could be read.
func decode(r *kgo.Record) (*postrider.Message, error) {
	m, err := cloudEvents.Decode(func(yield func(string, string) bool) {
		for _, h := range r.Headers {
			if !yield(h.Key, string(h.Value)) {
				return
			}
		}
	}, r.Value)
	if err == nil && m.Key == "" && utf8.Valid(r.Key) {
		m.Key = string(r.Key)
	}
	return m, err
}
