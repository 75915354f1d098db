package faults

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// copyBothWays passes on everything.
func copyBothWays(l *faultproxy.Link) (toServer, toClient func()) {
	// A connection that breaks is for both sides to notice.
	return func() { _, _ = io.Copy(l.Server, l.Client) }, func() { _, _ = io.Copy(l.Client, l.Server) }
}

// requestProxy stands between a store and its server and sees requests. What it holds back ends the connection for the
// client, or not, but not for the server.
type requestProxy struct {
	*faultproxy.Proxy
	read  func(r *bufio.Reader, n int) ([]byte, error)
	ended chan struct{} // closed when the test ends

	mu   sync.Mutex
	trap *trap
}

// trap waits for a request.
type trap struct {
	// is says whether it is the request.
	is func(request []byte) bool
	// forward is what of the request goes to the server at once.
	forward func(request []byte) []byte
	// cut ends the connection for the client.
	cut bool

	// sprung is closed when the request has come. When release is closed, the rest of it goes on; answered is closed when
	// the server has answered, or has ended the connection.
	sprung, release, answered chan struct{}
}

// newRequestProxy starts a proxy before a server. read reads the request number n of a connection.
func newRequestProxy(t *testing.T, server string, read func(r *bufio.Reader, n int) ([]byte, error)) *requestProxy {
	t.Helper()
	p := &requestProxy{read: read, ended: make(chan struct{})}
	p.Proxy = faultproxy.New(t, server, p.serve)
	t.Cleanup(func() { close(p.ended) })
	return p
}

// set waits for the next request for which is holds.
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
				continue // nobody is there to hear it
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

// hold keeps a request back until it is released, and the connection to the server open.
func (p *requestProxy) hold(l *faultproxy.Link, t *trap, request []byte) {
	var now []byte
	if t.forward != nil {
		now = t.forward(request)
	}
	_, _ = l.Server.Write(now) // a server that has gone is noticed in the end
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

// syncMessage is the end of a pipeline of PostgreSQL.
const syncMessage = "S\x00\x00\x00\x04"

// readPostgres reads what a client sends up to a Sync, or another message that the server answers at once.
func readPostgres(r *bufio.Reader, n int) ([]byte, error) {
	var request []byte
	if n == 0 { // the start has no type
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

// readBlock appends a length of which it is a part, and what it counts.
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
