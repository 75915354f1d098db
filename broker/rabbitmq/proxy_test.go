package rabbitmqbroker_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// proxy is a proxy for a RabbitMQ server that understands the protocol for publishing and causes faults on demand.
type proxy struct {
	*faultproxy.Proxy

	refuse, loseAck, loseMsg faultproxy.Marks

	// full is a queue that rejects messages, sink one that accepts any. Messages to be rejected or lost are rerouted
	// there.
	full, sink string
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	p := &proxy{}
	p.Proxy = faultproxy.New(t, server, func(l *faultproxy.Link) (toServer, toClient func()) {
		a := &link{Link: l, faults: p, channels: make(map[uint16]*confirming)}
		return a.toServer, a.toClient
	})
	return p
}

// link is one connection through the proxy.
type link struct {
	*faultproxy.Link

	faults *proxy

	mu       sync.Mutex
	channels map[uint16]*confirming
}

// confirming is a link's state of a channel in confirm mode.
type confirming struct {
	published uint64
	open      []uint64        // unanswered tags, increasing
	lost      map[uint64]bool // tags whose answer is lost
	method    *frame          // of a publish whose properties have not arrived yet
}

// frame is a frame of AMQP 0-9-1.
type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

const (
	methodFrame = 1
	headerFrame = 2
	frameEnd    = 0xCE

	channelOpen = 20<<16 | 10
	publish     = 60<<16 | 40
	ack         = 60<<16 | 80
	nack        = 60<<16 | 120
)

func readFrame(r *bufio.Reader) (*frame, error) {
	var head [7]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	f := &frame{kind: head[0], channel: binary.BigEndian.Uint16(head[1:])}
	f.payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	_, err := io.ReadFull(r, f.payload)
	f.payload = f.payload[:len(f.payload)-1]
	return f, err
}

func (f *frame) append(b []byte) []byte {
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint16(b, f.channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)))
	return append(append(b, f.payload...), frameEnd)
}

// method returns class and method of a method frame, 0 for other frames.
func (f *frame) method() uint32 {
	if f.kind != methodFrame || len(f.payload) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(f.payload)
}

// toServer forwards what the client sends, with the faults of messages.
func (l *link) toServer() {
	r := bufio.NewReaderSize(l.Client, 1<<20)
	var protocol [8]byte
	if _, err := io.ReadFull(r, protocol[:]); err != nil {
		return
	}
	out := protocol[:]
	for {
		if r.Buffered() == 0 || len(out) > 1<<16 {
			if _, err := l.Server.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		f, err := readFrame(r)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		l.mu.Lock()
		c := l.channels[f.channel]
		switch {
		case f.method() == channelOpen:
			l.channels[f.channel] = &confirming{lost: make(map[uint64]bool)}
		case f.method() == publish:
			c.published++
			c.open = append(c.open, c.published)
			c.method, f = f, nil
		case f.kind == headerFrame && c != nil && c.method != nil:
			out = l.faulty(c, messageID(f.payload)).append(out)
			c.method = nil
		}
		l.mu.Unlock()
		if f != nil {
			out = f.append(out)
		}
	}
}

// faulty applies the requested faults to a message and returns its method frame.
func (l *link) faulty(c *confirming, id string) *frame {
	p := l.faults
	switch {
	case p.refuse.Take(id):
		return reroute(c.method, p.full)
	case p.loseMsg.Take(id):
		c.lost[c.published] = true
		return reroute(c.method, p.sink)
	case p.loseAck.Take(id):
		c.lost[c.published] = true
	}
	return c.method
}

// reroute returns a publish frame with a queue as destination.
func reroute(f *frame, queue string) *frame {
	bits := f.payload[len(f.payload)-1]
	payload := append(slices.Clone(f.payload[:6]), 0, byte(len(queue))) // the default exchange
	payload = append(append(payload, queue...), bits)
	return &frame{kind: f.kind, channel: f.channel, payload: payload}
}

// messageID returns the message ID in a content header.
func messageID(payload []byte) string {
	flags := binary.BigEndian.Uint16(payload[12:])
	rest := payload[14:]
	for bit := 15; bit > 7; bit-- {
		if flags&(1<<bit) == 0 {
			continue
		}
		switch bit {
		case 13: // headers
			rest = rest[4+binary.BigEndian.Uint32(rest):]
		case 12, 11: // delivery mode, priority
			rest = rest[1:]
		default: // short strings
			rest = rest[1+int(rest[0]):]
		}
	}
	return string(rest[1 : 1+int(rest[0])])
}

// toClient forwards what the server sends, except lost acknowledgements.
func (l *link) toClient() {
	r := bufio.NewReaderSize(l.Server, 1<<20)
	var out []byte
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		if m := f.method(); m == ack || m == nack {
			out = l.answers(f, out)
		} else {
			out = f.append(out)
		}
		if r.Buffered() > 0 {
			continue
		}
		if _, err := l.Client.Write(out); err != nil {
			return
		}
		out = out[:0]
	}
}

// answers appends a separate acknowledgement for each tag that a server's acknowledgement covers, except the lost ones.
func (l *link) answers(f *frame, out []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.channels[f.channel]
	tag, multiple := binary.BigEndian.Uint64(f.payload[4:]), f.payload[12]&1 != 0
	c.open = slices.DeleteFunc(c.open, func(t uint64) bool {
		if t != tag && (!multiple || t > tag) {
			return false
		}
		if !c.lost[t] {
			one := &frame{kind: f.kind, channel: f.channel, payload: slices.Clone(f.payload)}
			binary.BigEndian.PutUint64(one.payload[4:], t)
			one.payload[12] &^= 1
			out = one.append(out)
		}
		delete(c.lost, t)
		return true
	})
	return out
}
