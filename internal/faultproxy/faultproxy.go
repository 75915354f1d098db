// Package faultproxy puts a proxy between a client under test and a real server. Connections can be broken, refused and
// paused; the test, which knows the protocol, handles the data.
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

// New starts a proxy in front of server, which is host:port. For each connection, serve returns the functions that
// forward what client and server send, each on its own goroutine until the connection ends.
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

// Address is the proxy's address, as host:port.
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

// Accepted is the number of connections let through so far.
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

// Restore ends Sever.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = false
}

// Redirect sends new connections to another server, which is host:port. Existing ones are not affected.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Pause makes Pass wait until Resume.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = make(chan struct{})
}

// Resume ends Pause.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

// Pass returns when the proxy is not paused. The functions of serve call it before they forward data.
func (p *Proxy) Pass() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	<-resumed
}

// Marks are message IDs to which something is to happen, once each. The zero value is empty; it is safe for concurrent
// use.
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

// TakeWhere says whether is holds for any marked ID, and unmarks all of those.
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
