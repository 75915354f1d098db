// Package bounded limits the open connections of a server.
package bounded

import (
	"container/list"
	"net"
	"sync"
)

// Listener returns a listener with a maximum number of open connections. One more closes the oldest, so that connections that send
// nothing cannot keep others out.
func Listener(l net.Listener, limit int) net.Listener { return &bounded{Listener: l, limit: limit} }

type bounded struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open list.List // of *tracked, the oldest first
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	t := &tracked{Conn: conn, of: b}
	t.place = b.open.PushBack(t)
	var oldest *tracked
	if b.open.Len() > b.limit {
		oldest = b.open.Front().Value.(*tracked)
	}
	b.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // its server finds out by itself
	}
	return t, nil
}

// tracked is an open connection of a bounded listener.
type tracked struct {
	net.Conn
	of    *bounded
	place *list.Element
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.of.mu.Lock()
	t.of.open.Remove(t.place) // does nothing the second time
	t.of.mu.Unlock()
	return t.Conn.Close()
}
