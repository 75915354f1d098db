package natsbroker_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// proxy stands between a client and a NATS server, understands their protocol, and makes go wrong what it is told to. A
// fault of a message ID happens once.
type proxy struct {
	listener net.Listener
	server   string // host:port
	running  sync.WaitGroup

	mu       sync.Mutex
	resumed  chan struct{} // closed while nothing is paused
	links    map[*link]bool
	refuse   map[string]bool
	loseAck  map[string]bool
	loseMsg  map[string]bool
	closed   bool
	severed  bool // no connection is let through
	accepted int
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		listener: listener, server: server,
		resumed: make(chan struct{}), links: make(map[*link]bool),
		refuse: make(map[string]bool), loseAck: make(map[string]bool), loseMsg: make(map[string]bool),
	}
	close(p.resumed)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, lostAcks: make(map[string]bool)}
		p.mu.Lock()
		if p.closed || p.severed {
			p.mu.Unlock()
			l.close()
			continue
		}
		p.links[l] = true
		p.accepted++
		p.mu.Unlock()
		p.running.Go(l.toServer)
		p.running.Go(l.toClient)
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.resume()
	p.drop()
	p.running.Wait()
}

// drop cuts every connection.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
		delete(p.links, l)
	}
}

// cut breaks every connection and lets none be made until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	p.severed = true
	p.mu.Unlock()
	p.drop()
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = false
}

func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = make(chan struct{})
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

// pass returns when nothing is paused.
func (p *proxy) pass() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	<-resumed
}

// mark returns a function that adds message IDs to one of the proxy's sets.
func (p *proxy) mark(set map[string]bool) func(ids ...string) {
	return func(ids ...string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			set[id] = true
		}
	}
}

// take says whether id is in the set, and takes it out.
func (p *proxy) take(set map[string]bool, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := set[id]
	delete(set, id)
	return found
}

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu       sync.Mutex // for writing to the client, and the following
	subs     [][2]string
	lostAcks map[string]bool // reply subjects whose answer is to be lost
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// toServer passes on what the client sends, frame by frame.
func (l *link) toServer() {
	defer l.close()
	r := bufio.NewReaderSize(l.client, 1<<20)
	for {
		line, payload, err := readFrame(r)
		if err != nil {
			return
		}
		l.proxy.pass()
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 3 && strings.EqualFold(fields[0], "SUB"):
			l.mu.Lock()
			l.subs = append(l.subs, [2]string{fields[1], fields[len(fields)-1]})
			l.mu.Unlock()
		case len(fields) == 5 && strings.EqualFold(fields[0], "HPUB") && l.faulty(fields[2], payload):
			continue
		}
		if _, err := l.server.Write(append([]byte(line), payload...)); err != nil {
			return
		}
	}
}

// faulty does what has been asked for to a message with a reply subject, and says whether the server does not get it.
func (l *link) faulty(reply string, payload []byte) bool {
	id := headerOf(payload, "Nats-Msg-Id")
	p := l.proxy
	switch {
	case p.take(p.loseMsg, id):
		return true
	case p.take(p.refuse, id):
		l.answer(reply, `{"error":{"code":400,"err_code":10071,"description":"refused by the test"},"stream":"TEST","seq":0}`)
		return true
	case p.take(p.loseAck, id):
		l.mu.Lock()
		l.lostAcks[reply] = true
		l.mu.Unlock()
	}
	return false
}

// answer makes the client receive a message.
func (l *link) answer(subject, data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sub := range l.subs {
		pattern, _, _ := strings.Cut(sub[0], ".*")
		if strings.HasPrefix(subject, pattern) {
			_, _ = fmt.Fprintf(l.client, "MSG %s %s %d\r\n%s\r\n", subject, sub[1], len(data), data)
			return
		}
	}
}

// toClient passes on what the server sends, but for lost answers.
func (l *link) toClient() {
	defer l.close()
	r := bufio.NewReaderSize(l.server, 1<<20)
	for {
		line, payload, err := readFrame(r)
		if err != nil {
			return
		}
		l.proxy.pass()
		fields := strings.Fields(line)
		l.mu.Lock()
		if len(fields) >= 4 && strings.HasSuffix(fields[0], "MSG") && l.lostAcks[fields[1]] {
			delete(l.lostAcks, fields[1])
			l.mu.Unlock()
			continue
		}
		_, err = l.client.Write(append([]byte(line), payload...))
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// readFrame reads a line of the protocol and, if one follows, the payload with its line end.
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
