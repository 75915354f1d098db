package natsbroker

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
)

// maxHeaderBytes is what the server takes of headers; more is refused whatever max_payload says.
const maxHeaderBytes = 64<<10 - 1

// cloudEvents is how a message's attributes become headers.
var cloudEvents = postrider.CloudEventsBinary{}

// encoder makes NATS messages of a call's messages. What it returns is valid until the next.
type encoder struct {
	p      *Publisher
	reply  []byte   // <inbox>.<call>.
	topic  string   // of the message before
	strays bool     // the stream does not take the topic's subject, as far as is known
	values []string // a header value is a slice of this
	msg    nats.Msg
}

func newEncoder(p *Publisher, call uint64) encoder {
	reply := append([]byte(p.inbox), '.')
	reply = append(strconv.AppendUint(reply, call, 36), '.')
	return encoder{p: p, reply: reply, msg: nats.Msg{Header: make(nats.Header, 16)}}
}

// encode returns the NATS message of m, the call's message number i. It fails when the headers are too large.
func (e *encoder) encode(i int, m *postrider.Message) (*nats.Msg, error) {
	if e.msg.Subject == "" || m.Topic != e.topic {
		e.topic, e.msg.Subject = m.Topic, Subject(e.p.cfg.Prefix, m.Topic)
		e.strays = !e.p.takes(e.msg.Subject)
	}
	e.msg.Reply = string(strconv.AppendUint(e.reply, uint64(i), 36))
	e.msg.Data = m.Payload
	clear(e.msg.Header)
	e.values = e.values[:0]
	size := len("NATS/1.0\r\n\r\n") + e.set(nats.MsgIdHdr, messageID(m.ID))
	if e.strays { // another stream may take it, and must not
		size += e.set(nats.ExpectedStreamHdr, e.p.stream.Name)
	}
	for name, value := range cloudEvents.Headers(m) {
		size += e.set(name, value)
	}
	if size > maxHeaderBytes {
		return nil, tooLarge(fmt.Errorf("headers take %d bytes; NATS takes %d", size, maxHeaderBytes))
	}
	return &e.msg, nil
}

// set sets a header and returns its size in bytes.
func (e *encoder) set(name, value string) int {
	e.values = append(e.values, value)
	n := len(e.values)
	e.msg.Header[name] = e.values[n-1 : n : n]
	return len(name) + len(value) + len(": \r\n")
}

// messageID is what the stream knows a message by: its ID, in which space, %, and what is not printable ASCII stand as %
// and two hexadecimal digits.
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
