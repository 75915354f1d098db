package redisbroker_test

import (
	"net"
	"sync"
	"testing"
)

// proxy stands between clients and a Redis server, and makes go wrong what it is told to.
type proxy struct {
	listener net.Listener
	server   string // host:port
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	resumed chan struct{}   // closed while nothing is paused
	loseAck map[string]bool // texts in requests whose answer is to be lost, once
	severed bool            // no connection is let through
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		listener: listener, server: server, links: make(map[*link]bool), resumed: make(chan struct{}), loseAck: make(map[string]bool),
	}
	close(p.resumed)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.resume()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

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
		l := &link{proxy: p, client: client, server: server}
		p.mu.Lock()
		if p.severed {
			l.close()
		} else {
			p.links[l] = true
			p.running.Go(l.toServer)
			p.running.Go(l.toClient)
		}
		p.mu.Unlock()
	}
}

// drop breaks every connection.
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

// loseAcks has each of these texts, once, cost the answer to the request that holds it, and the connection.
func (p *proxy) loseAcks(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		p.loseAck[id] = true
	}
}

// unlucky says whether an answer to the request is to be lost.
func (p *proxy) unlucky(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := false
	for id := range p.loseAck {
		if holds(request, id) {
			delete(p.loseAck, id)
			found = true
		}
	}
	return found
}

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu   sync.Mutex
	mute bool // the next answer is lost
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *link) toServer() {
	defer l.close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		l.proxy.pass()
		if l.proxy.unlucky(buffer[:n]) {
			l.mu.Lock()
			l.mute = true
			l.mu.Unlock()
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	defer l.close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		l.proxy.pass()
		l.mu.Lock()
		mute := l.mute
		l.mu.Unlock()
		if mute {
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
