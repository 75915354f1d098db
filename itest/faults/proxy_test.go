package faults

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// copyBothWays forwards everything.
func copyBothWays(l *faultproxy.Link) (toServer, toClient func()) {
	// Both sides notice a broken connection themselves.
	return func() { _, _ = io.Copy(l.Server, l.Client) }, func() { _, _ = io.Copy(l.Client, l.Server) }
}

// requestProxy is a proxy between a store and its server that inspects requests. When it holds a request, it may close
// the connection to the client, but not to the server.
type requestProxy struct {
	*faultproxy.Proxy
	read  func(r *bufio.Reader, n int) ([]byte, error)
	ended chan struct{} // closed when the test ends

	mu   sync.Mutex
	trap *trap
}

// trap holds a matching request.
type trap struct {
	// is says whether to hold the request.
	is func(request []byte) bool
	// forward returns the part of the request to forward at once.
	forward func(request []byte) []byte
	// cut closes the connection to the client.
	cut bool

	// sprung is closed when the request has arrived. When release is closed, the rest of it is forwarded; answered is
	// closed when the server has responded, or has closed the connection.
	sprung, release, answered chan struct{}
}

// newRequestProxy starts a proxy in front of a server. read reads the request number n of a connection.
func newRequestProxy(t *testing.T, server string, read func(r *bufio.Reader, n int) ([]byte, error)) *requestProxy {
	t.Helper()
	p := &requestProxy{read: read, ended: make(chan struct{})}
	p.Proxy = faultproxy.New(t, server, p.serve)
	t.Cleanup(func() { close(p.ended) })
	return p
}

// set sets a trap for the next matching request.
func (p *requestProxy) set(t *trap) *trap {
	t.sprung, t.release, t.answered = make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = t
	return t
}

func (p *requestProxy) take(request []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap == nil || !p.trap.is(request) {
		return nil
	}
	t := p.trap
	p.trap = nil
	return t
}

func (p *requestProxy) serve(l *faultproxy.Link) (toServer, toClient func()) {
	var caught *trap
	var mu sync.Mutex
	toServer = func() {
		r := bufio.NewReader(l.Client)
		for n := 0; ; n++ {
			request, err := p.read(r, n)
			if err != nil {
				return
			}
			if t := p.take(request); t != nil {
				mu.Lock()
				caught = t
				mu.Unlock()
				p.hold(l, t, request)
				return
			}
			if _, err := l.Server.Write(request); err != nil {
				return
			}
		}
	}
	toClient = func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := l.Server.Read(buffer)
			mu.Lock()
			t := caught
			mu.Unlock()
			if t != nil && isClosed(t.release) {
				close(t.answered)
				return
			}
			if t != nil && err == nil {
				continue // the client is gone
			}
			if err != nil {
				return
			}
			if _, err := l.Client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	return toServer, toClient
}

// hold holds a request until it is released, and keeps the connection to the server open.
func (p *requestProxy) hold(l *faultproxy.Link, t *trap, request []byte) {
	var now []byte
	if t.forward != nil {
		now = t.forward(request)
	}
	_, _ = l.Server.Write(now) // a closed server connection is noticed later
	if t.cut {
		_ = l.Client.Close()
	}
	close(t.sprung)
	select {
	case <-t.release:
		_, _ = l.Server.Write(request[len(now):])
		select {
		case <-t.answered:
		case <-p.ended:
		}
	case <-p.ended:
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// syncMessage ends a PostgreSQL pipeline.
const syncMessage = "S\x00\x00\x00\x04"

// readPostgres reads a client's messages up to a Sync, or another message that the server answers at once.
func readPostgres(r *bufio.Reader, n int) ([]byte, error) {
	var request []byte
	if n == 0 { // the startup message has no type
		return readBlock(r, nil, 4)
	}
	for {
		kind, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		if request, err = readBlock(r, append(request, kind), 4); err != nil {
			return nil, err
		}
		switch kind {
		case 'S', 'H', 'Q', 'X', 'p', 'd', 'c', 'f':
			return request, nil
		}
	}
}

// readBlock appends a length, which includes itself, and the bytes that it counts.
func readBlock(r io.Reader, request []byte, size int) ([]byte, error) {
	length := make([]byte, size)
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(length)-4)
	_, err := io.ReadFull(r, body)
	return append(append(request, length...), body...), err
}

// readMySQL reads one packet.
func readMySQL(r *bufio.Reader, _ int) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}
