package natsbroker_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// proxy is a proxy for a NATS server that understands the protocol and causes faults on demand.
type proxy struct {
	*faultproxy.Proxy

	mu       sync.Mutex
	refuse   map[string]int // number of times, by message ID
	loseAck  map[string]int
	loseMsg  map[string]int
	onSend   func(reply string) (pass bool) // called for every message with a reply subject, if not nil
	onAnswer func(subject string) (pass bool)
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	p := &proxy{refuse: make(map[string]int), loseAck: make(map[string]int), loseMsg: make(map[string]int)}
	p.Proxy = faultproxy.New(t, server, func(l *faultproxy.Link) (toServer, toClient func()) {
		n := &link{Link: l, faults: p, broken: make(map[string]bool), lostAcks: make(map[string]bool)}
		return n.toServer, n.toClient
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.Address() }

// mark returns a function that applies the fault of a set to messages, the given number of times each.
func (p *proxy) mark(set map[string]int, times int) func(ids ...string) {
	return func(ids ...string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			set[id] = times
		}
	}
}

// take reports whether the fault of the set applies to a message now.
func (p *proxy) take(set map[string]int, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set[id] == 0 {
		return false
	}
	set[id]--
	return true
}

// passes calls one of the proxy's functions.
func (p *proxy) passes(f *func(string) bool, subject string) bool {
	p.mu.Lock()
	pass := *f
	p.mu.Unlock()
	return pass == nil || pass(subject)
}

// when sets one of the proxy's functions.
func (p *proxy) when(f *func(string) bool, pass func(string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*f = pass
}

// link is one connection through the proxy.
type link struct {
	*faultproxy.Link

	faults *proxy
	broken map[string]bool // batches with a dropped message

	mu       sync.Mutex // for writing to the client, and the following fields
	subs     [][2]string
	lostAcks map[string]bool // reply subjects whose answer is lost
}

// toServer forwards what the client sends, frame by frame.
func (l *link) toServer() {
	r := bufio.NewReaderSize(l.Client, 1<<20)
	for {
		line, payload, err := readFrame(r)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 3 && strings.EqualFold(fields[0], "SUB"):
			l.mu.Lock()
			l.subs = append(l.subs, [2]string{fields[1], fields[len(fields)-1]})
			l.mu.Unlock()
		case len(fields) == 5 && strings.EqualFold(fields[0], "HPUB") && l.faulty(fields[2], payload):
			continue
		case len(fields) >= 4 && strings.HasSuffix(strings.ToUpper(fields[0]), "PUB") && !l.faults.passes(&l.faults.onSend, fields[2]):
			continue
		}
		if _, err := l.Server.Write(append([]byte(line), payload...)); err != nil {
			return
		}
	}
}

// faulty applies the requested faults to a message with a reply subject, and reports whether the server does not get it.
// It drops only one message of a batch, because the server accepts nothing after it.
func (l *link) faulty(reply string, payload []byte) bool {
	id := headerOf(payload, "Nats-Msg-Id")
	p := l.faults
	batch := batchOf(reply)
	switch {
	case batch != "" && l.broken[batch]:
		return false
	case p.take(p.loseMsg, id):
		l.broken[batch] = true
		return true
	case p.take(p.refuse, id):
		l.broken[batch] = true
		l.answer(reply, `{"error":{"code":400,"err_code":10071,"description":"refused by the test"},"stream":"TEST","seq":0}`)
		return true
	case p.take(p.loseAck, id):
		l.mu.Lock()
		l.lostAcks[reply] = true
		l.mu.Unlock()
	}
	return false
}

// batchOf returns the common prefix of a batch's reply subjects; "" for a single message.
func batchOf(reply string) string {
	fields := strings.Split(reply, ".")
	if fields[len(fields)-1] != "$FI" {
		return ""
	}
	return strings.Join(fields[:len(fields)-3], ".")
}

// answer sends a message to the client.
func (l *link) answer(subject, data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sub := range l.subs {
		if prefix, ok := strings.CutSuffix(sub[0], ".>"); ok && strings.HasPrefix(subject, prefix+".") {
			_, _ = fmt.Fprintf(l.Client, "MSG %s %s %d\r\n%s\r\n", subject, sub[1], len(data), data)
			return
		}
	}
}

// toClient forwards what the server sends, except lost answers.
func (l *link) toClient() {
	r := bufio.NewReaderSize(l.Server, 1<<20)
	for {
		line, payload, err := readFrame(r)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		fields := strings.Fields(line)
		if len(fields) >= 4 && strings.HasSuffix(fields[0], "MSG") && !l.faults.passes(&l.faults.onAnswer, fields[1]) {
			continue
		}
		l.mu.Lock()
		if len(fields) >= 4 && strings.HasSuffix(fields[0], "MSG") && l.lostAcks[fields[1]] {
			delete(l.lostAcks, fields[1])
			l.mu.Unlock()
			continue
		}
		_, err = l.Client.Write(append([]byte(line), payload...))
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// readFrame reads a protocol line and, if there is one, the payload with its line end.
func readFrame(r *bufio.Reader) (line string, payload []byte, err error) {
	if line, err = r.ReadString('\n'); err != nil {
		return "", nil, err
	}
	verb, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	switch strings.ToUpper(verb) {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return line, nil, nil
	}
	fields := strings.Fields(rest)
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return "", nil, fmt.Errorf("frame %q: %w", line, err)
	}
	payload = make([]byte, n+2)
	_, err = io.ReadFull(r, payload)
	return line, payload, err
}

// headerOf returns the value of a header of a payload with headers.
func headerOf(payload []byte, name string) string {
	_, rest, ok := bytes.Cut(payload, []byte("\r\n"+name+": "))
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(value)
}
