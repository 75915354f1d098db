package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// gate controls the relay's connections. When it is closed, open connections break and new ones fail.
type gate struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

var errGate = errors.New("the broker is away")

// Dial implements nats.CustomDialer.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	if g.isClosed() {
		return nil, errGate
	}
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return conn, g.pass(conn)
}

// pass accepts a new connection, or closes it.
func (g *gate) pass(conn net.Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = conn.Close()
		return errGate
	}
	if g.conns == nil {
		g.conns = map[net.Conn]struct{}{}
	}
	g.conns[conn] = struct{}{}
	return nil
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

// proxy forwards to a server through a gate, for clients that dial connections themselves.
type proxy struct {
	gate     gate
	listener net.Listener
	target   string
	running  sync.WaitGroup
}

// startProxy forwards from a local address to a server, host:port.
func startProxy(target string) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the relay's connections: %w", err)
	}
	p := &proxy{listener: listener, target: target}
	p.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.lead(conn) })
		}
	})
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// lead copies both ways until one side ends.
func (p *proxy) lead(client net.Conn) {
	defer client.Close()
	server, err := p.gate.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	ended := make(chan struct{}, 2)
	for _, way := range []struct{ to, from net.Conn }{{server, client}, {client, server}} {
		p.running.Go(func() {
			_, _ = io.Copy(way.to, way.from)
			ended <- struct{}{}
		})
	}
	<-ended
}

// end closes everything and waits for it.
func (p *proxy) end() {
	_ = p.listener.Close()
	p.gate.close()
	p.running.Wait()
}
