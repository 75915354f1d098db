package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// cloudEvents is how a message's attributes become headers: the binary mode of CloudEvents' Kafka binding.
var cloudEvents = postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}

// outgoing is one message on its way out. The client carries it along as the context of its record.
type outgoing struct {
	endless
	index    int
	msg      *postrider.Message
	previous *outgoing // the message before it in the call with the same key
	topic    *topic
	record   kgo.Record
	size     int // the most that the record takes in a batch, in bytes

	state state
	err   error // why it is rejected
	// diagnosis is the outcome of a message that is rejected for want of an answer.
	diagnosis error
	// Of the round that it was sent in last: the message before it if that was sent too, the number of the batch that it came
	// to stand in, and whether it was held back because that is another one. The client's goroutines write the latter two.
	round  int
	before *outgoing
	batch  uint64
	waits  bool
}

// endless is a context that never ends: the end of a record's context would fail the records of other calls too. The client
// may look at it for longer than it has the record, when the memory is another message's. There is nothing in it.
type endless struct{}

var _ context.Context = (*outgoing)(nil)

// Deadline implements context.Context.
func (endless) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (endless) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (endless) Err() error { return nil }

// Value implements context.Context. It is the message itself that outgoingOf finds.
func (o *outgoing) Value(key any) any {
	if key == (outgoingKey{}) {
		return o
	}
	return nil
}

type outgoingKey struct{}

// outgoingOf returns the message of a record, in whose context a hook, as one for tracing, may have wrapped that of encode.
func outgoingOf(r *kgo.Record) *outgoing {
	if o, ok := r.Context.(*outgoing); ok {
		return o
	}
	return r.Context.Value(outgoingKey{}).(*outgoing)
}

type state uint8

const (
	held state = iota // not sent, or held back
	accepted
	rejected
)

// The most that a batch, a record and a header take beside names and values, in bytes: fixed fields and lengths.
const (
	batchOverhead  = 61 + 4
	recordOverhead = 5 + 1 + 10 + 5 + 5 + 5 + 5
	headerOverhead = 5 + 5
)

// encoder holds the headers of a call's records in memory that they share. When it is used up, a larger piece takes its
// place, and the records have what was in it.
type encoder struct {
	headers []kgo.RecordHeader
	first   int // of the record, in headers
	values  []byte
}

const (
	minHeaders, minBytes = 1024, 64 << 10
	// maxAttributes is how many headers a message has at most beside its own: attributes, and those for tracing once more.
	maxAttributes = 20
)

// bytes returns a copy of a text.
func (e *encoder) bytes(text string) []byte {
	if cap(e.values)-len(e.values) < len(text) {
		e.values = make([]byte, 0, max(minBytes, 2*cap(e.values), len(text)))
	}
	at := len(e.values)
	e.values = append(e.values, text...)
	return e.values[at:len(e.values):len(e.values)]
}

// record begins the headers of a record.
func (e *encoder) record(m *postrider.Message) {
	if need := maxAttributes + len(m.Headers); cap(e.headers)-len(e.headers) < need {
		e.headers = make([]kgo.RecordHeader, 0, max(minHeaders, 2*cap(e.headers), need))
	}
	e.first = len(e.headers)
}

func (e *encoder) add(name, value string) {
	e.headers = append(e.headers, kgo.RecordHeader{Key: name, Value: e.bytes(value)})
}

// recorded returns the headers of the record.
func (e *encoder) recorded() []kgo.RecordHeader { return slices.Clip(e.headers[e.first:]) }

// reset makes the memory free, once no record needs it.
func (e *encoder) reset() {
	clear(e.headers) // of pieces that are used up
	e.headers, e.values = e.headers[:0], e.values[:0]
}

// encode makes the record. Its error is the outcome of a message that the topic would not take.
func (o *outgoing) encode(e *encoder) error {
	m, t := o.msg, o.topic
	if size, limit := m.Size(), sizeLimit(t.limit); size > limit {
		return tooLarge(fmt.Errorf("%d bytes; the limit is %d, which is max.message.bytes of topic %s less %d for headers", size, limit, t.name, t.limit-limit))
	}
	if t.compacted && m.Key == "" {
		return postrider.Dead("no key", fmt.Errorf("topic %s is compacted, and takes messages with a key only; publish with a key, or set its cleanup.policy to delete", t.name))
	}
	e.record(m)
	o.size = batchOverhead + recordOverhead + len(m.Key) + len(m.Payload)
	for name, value := range cloudEvents.Headers(m) {
		e.add(name, value)
		o.size += headerOverhead + len(name) + len(value)
	}
	if o.size > t.limit {
		return tooLarge(fmt.Errorf("up to %d bytes with its headers; max.message.bytes of topic %s is %d", o.size, t.name, t.limit))
	}
	o.record = kgo.Record{Topic: t.name, Value: m.Payload, Context: o, Headers: e.recorded()}
	if m.Key != "" {
		o.record.Key = e.bytes(m.Key)
	}
	if m.Payload == nil {
		o.record.Value = []byte{} // nil would be a tombstone
	}
	return nil
}
