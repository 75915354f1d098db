package kafkabroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
)

// cloudEvents converts a message's attributes to headers and back: binary mode of the CloudEvents Kafka binding.
var cloudEvents = postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}

// outgoing is a message to send. It is also the context of its record.
type outgoing struct {
	endless
	index    int
	msg      *postrider.Message
	previous *outgoing // previous message with the same key in the call
	topic    *topic
	record   kgo.Record
	size     int // maximum size of the record in a batch, in bytes

	state state
	err   error // why it was rejected
	// diagnosis is the error of a message that was not answered.
	diagnosis error
	// State of its last round: the predecessor if that was sent in the same round, the number of its batch, and whether
	// it was held back because the predecessor is in another batch. The client's goroutines write batch and waits.
	round  int
	before *outgoing
	batch  uint64
	waits  bool
}

// endless is a context that never ends: if a record's context ended, records of other calls would fail too. The client
// may use it after it has finished with the record, when the memory belongs to another message, so it has no fields.
type endless struct{}

var _ context.Context = (*outgoing)(nil)

// Deadline implements context.Context.
func (endless) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (endless) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (endless) Err() error { return nil }

// Value implements context.Context. It returns the message for outgoingOf.
func (o *outgoing) Value(key any) any {
	if key == (outgoingKey{}) {
		return o
	}
	return nil
}

type outgoingKey struct{}

// outgoingOf returns the message of a record. A hook, e.g. for tracing, may have wrapped the record's context.
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

// Maximum overhead of a batch, a record and a header in bytes, without names and values: fixed fields and lengths.
const (
	batchOverhead  = 61 + 4
	recordOverhead = 5 + 1 + 10 + 5 + 5 + 5 + 5
	headerOverhead = 5 + 5
)

// encoder stores the headers of a call's records in shared memory. When it is full, the encoder allocates a larger
// block; existing records keep the old one.
type encoder struct {
	headers []kgo.RecordHeader
	first   int // index in headers of the record's first header
	values  []byte
}

const (
	minHeaders, minBytes = 1024, 64 << 10
	// maxAttributes is the maximum number of headers besides the message's own: attributes, and duplicate tracing
	// headers.
	maxAttributes = 20
)

// bytes returns text as bytes in the shared memory.
func (e *encoder) bytes(text string) []byte {
	if cap(e.values)-len(e.values) < len(text) {
		e.values = make([]byte, 0, max(minBytes, 2*cap(e.values), len(text)))
	}
	at := len(e.values)
	e.values = append(e.values, text...)
	return e.values[at:len(e.values):len(e.values)]
}

// record starts the headers of a record.
func (e *encoder) record(m *postrider.Message) {
	if need := maxAttributes + len(m.Headers); cap(e.headers)-len(e.headers) < need {
		e.headers = make([]kgo.RecordHeader, 0, max(minHeaders, 2*cap(e.headers), need))
	}
	e.first = len(e.headers)
}

func (e *encoder) add(name, value string) {
	e.headers = append(e.headers, kgo.RecordHeader{Key: name, Value: e.bytes(value)})
}

// recorded returns the headers of the current record.
func (e *encoder) recorded() []kgo.RecordHeader { return slices.Clip(e.headers[e.first:]) }

// reset makes the memory reusable, when no record uses it any more.
func (e *encoder) reset() {
	clear(e.headers) // may refer to old blocks
	e.headers, e.values = e.headers[:0], e.values[:0]
}

// encode creates the record. It fails if the topic would not accept the message.
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
