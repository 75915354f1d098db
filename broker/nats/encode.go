package natsbroker

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
)

// maxHeaderBytes is the server's limit for headers, independent of max_payload.
const maxHeaderBytes = 64<<10 - 1

// cloudEvents converts a message's attributes to headers and back.
var cloudEvents = postrider.CloudEventsBinary{}

// encoder converts a call's messages to NATS messages. A returned message is valid until the next call of encode.
type encoder struct {
	p       *Publisher
	topic   string   // of the previous message
	prefix  string   // what its subjects begin with,
	suffix  string   // and what they have after the partition
	strays  bool     // the stream is not known to take the topic's subjects
	names   []string // header names of the previous message, in order
	values  []string // header values: msg.Header[names[i]] is values[i:i+1]
	headers int      // number of headers set so far for the current message
	reply   []byte
	msg     nats.Msg
}

func newEncoder(p *Publisher) encoder {
	return encoder{p: p}
}

// address sets the subject of m and reports whether the stream is not known to take it.
func (e *encoder) address(m *postrider.Message) (strays bool) {
	cfg := &e.p.cfg
	if e.msg.Subject == "" || m.Topic != e.topic {
		e.topic, e.msg.Subject = m.Topic, Subject(cfg.Prefix, m.Topic)
		all := e.msg.Subject
		if cfg.Partitioned {
			e.prefix, e.suffix = cfg.partitionPrefix(), Subject("", m.Topic)
			all = e.prefix + "*.*." + e.suffix
		}
		e.strays = !e.p.takes(all)
	}
	if cfg.Partitioned {
		e.msg.Subject = partitionedSubject(e.prefix, e.suffix, m)
	}
	return e.strays
}

// encode returns the NATS message of m, without a reply subject. With only, no other stream accepts it. It fails if the
// headers are too large.
func (e *encoder) encode(m *postrider.Message, only bool) (*nats.Msg, error) {
	only = e.address(m) || only
	e.msg.Data = m.Payload
	e.headers = 0
	// The stream's name always counts, so that whether a message fits does not depend on its place in a batch.
	size := len("NATS/1.0\r\n\r\n") + headerSize(nats.ExpectedStreamHdr, e.p.stream.Name) + e.set(nats.MsgIdHdr, messageID(m.PublishID()))
	for name, value := range cloudEvents.Headers(m) {
		size += e.set(name, value)
	}
	if only {
		e.set(nats.ExpectedStreamHdr, e.p.stream.Name)
	}
	e.cut()
	if size > maxHeaderBytes {
		return nil, tooLarge(fmt.Errorf("headers take %d bytes; NATS takes %d", size, maxHeaderBytes))
	}
	return &e.msg, nil
}

// set sets the next header of the message and returns its size in bytes. Most messages have the same header names as the
// previous one; the map then stays unchanged.
func (e *encoder) set(name, value string) int {
	i := e.headers
	e.headers++
	if i < len(e.names) && e.names[i] != name {
		e.headers = i
		e.cut()
		e.headers++
	}
	if i < len(e.names) {
		e.values[i] = value
	} else {
		e.add(name, value)
	}
	return headerSize(name, value)
}

func headerSize(name, value string) int { return len(name) + len(value) + len(": \r\n") }

// add adds a header that the previous message did not have.
func (e *encoder) add(name, value string) {
	if e.msg.Header == nil {
		e.msg.Header = make(nats.Header, 16)
	}
	moved := len(e.values) == cap(e.values)
	e.names, e.values = append(e.names, name), append(e.values, value)
	from := len(e.names) - 1
	if moved {
		from = 0
	}
	for i := from; i < len(e.names); i++ {
		e.msg.Header[e.names[i]] = e.values[i : i+1 : i+1]
	}
}

// cut removes the headers of the previous message that this one does not have.
func (e *encoder) cut() {
	for _, name := range e.names[e.headers:] {
		delete(e.msg.Header, name)
	}
	e.names, e.values = e.names[:e.headers], e.values[:e.headers]
}

// singleReply returns the reply subject of message i of the given call.
func (e *encoder) singleReply(call uint64, i int) string {
	b := append(e.reply[:0], e.p.inbox...)
	b = strconv.AppendUint(append(b, '.'), call, 36)
	e.reply = strconv.AppendUint(append(b, '.'), uint64(i), 36)
	return string(e.reply)
}

// batchReply returns the reply subject of a message of a batch. The subject also tells the server the batch ID, how
// often to acknowledge, that the batch ends at a missing message, and the message's number and operation.
func (e *encoder) batchReply(batch uint64, number int, op byte) string {
	b := append(e.reply[:0], e.p.inbox...)
	b = append(append(b, '.'), e.p.batchID...)
	b = strconv.AppendUint(append(b, '-'), batch, 36)
	b = strconv.AppendUint(append(b, '.'), flow, 10)
	b = append(b, ".fail."...)
	b = strconv.AppendUint(b, uint64(number), 10)
	e.reply = append(b, '.', op, '.', '$', 'F', 'I')
	return string(e.reply)
}

// messageID returns the message ID in a form that a header can hold: space, % and everything that is not printable ASCII
// are escaped as % and two hexadecimal digits.
func messageID(id string) string {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '%' {
			return escapeID(id)
		}
	}
	return id
}

func escapeID(id string) string {
	escaped := make([]byte, 0, 3*len(id))
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '%' {
			escaped = fmt.Appendf(escaped, "%%%02X", c)
		} else {
			escaped = append(escaped, c)
		}
	}
	return string(escaped)
}
