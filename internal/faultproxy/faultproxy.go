// Package faultproxy puts a proxy between a client under test and a real server. Connections can be broken, refused and
// paused; what passes through them is the business of the test, which knows the protocol.
package faultproxy

import (
	"net"
	"sync"
	"testing"
)

// Proxy listens on a loopback port and connects each client to the server. It ends with the test.
type Proxy struct {
	listener net.Listener
	serve    func(*Link) (toServer, toClient func())
	running  sync.WaitGroup

	mu       sync.Mutex
	server   string
	resumed  chan struct{} // closed while nothing is paused
	links    map[*Link]bool
	accepted int
	severed  bool // no connection is let through
}

// Link is one connection through a proxy.
type Link struct {
	Proxy          *Proxy
	Client, Server net.Conn
}

// Close breaks the connection on both sides.
func (l *Link) Close() {
	_ = l.Client.Close()
	_ = l.Server.Close()
}

// New starts a proxy in front of server, which is host:port. For each connection, serve returns the functions that pass on
// what client and server send, each on a goroutine of its own until the connection ends.
func New(t testing.TB, server string, serve func(*Link) (toServer, toClient func())) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, server: server, serve: serve, resumed: make(chan struct{}), links: make(map[*Link]bool)}
	close(p.resumed)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Sever()
		p.Resume()
		p.running.Wait()
	})
	return p
}

// Address is where clients find the proxy, as host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		severed, address := p.severed, p.server
		p.mu.Unlock()
		if severed {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", address)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.connect(&Link{Proxy: p, Client: client, Server: server})
	}
}

func (p *Proxy) connect(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.severed {
		l.Close()
		return
	}
	p.links[l] = true
	p.accepted++
	toServer, toClient := p.serve(l)
	for _, pass := range []func(){toServer, toClient} {
		p.running.Go(func() {
			defer l.Close()
			pass()
		})
	}
}

// Accepted is how many connections have been let through.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Drop breaks every connection; new ones are let through.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.Close()
		delete(p.links, l)
	}
}

// Sever breaks every connection and lets none through until Restore.
func (p *Proxy) Sever() {
	p.mu.Lock()
	p.severed = true
	p.mu.Unlock()
	p.Drop()
}

// Restore ends what Sever began.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = false
}

// Redirect sends connections that come from now on to another server, which is host:port. Those that are there go on.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Pause lets Pass wait until Resume.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = make(chan struct{})
}

// Resume ends what Pause began.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

// Pass returns when nothing is paused. The functions of serve call it before they pass something on.
func (p *Proxy) Pass() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	<-resumed
}

// Marks are message IDs that something shall happen to, once each. The zero value has none; it is safe for concurrent use.
type Marks struct {
	mu  sync.Mutex
	ids map[string]bool
}

// Mark adds message IDs.
func (m *Marks) Mark(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = make(map[string]bool)
	}
	for _, id := range ids {
		m.ids[id] = true
	}
}

// Take says whether id is marked, and unmarks it.
func (m *Marks) Take(id string) bool {
	return m.TakeWhere(func(marked string) bool { return marked == id })
}

// TakeWhere says whether is holds for any ID that is marked, and unmarks all those.
func (m *Marks) TakeWhere(is func(id string) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := false
	for id := range m.ids {
		if is(id) {
			delete(m.ids, id)
			found = true
		}
	}
	return found
}
