package postridertest

import (
	"io"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// Proxy is a TCP proxy between a service under test and a real server, such as a database or a broker: connect to Address instead of
// the server. It ends with the test, and its methods may be called at any time.
type Proxy struct {
	proxy  *faultproxy.Proxy
	losing atomic.Bool
}

// NewProxy starts a proxy on a free port of the loopback interface, in front of a server, which is host:port. If clients verify the
// server's certificate, tell them its name.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	p := &Proxy{}
	p.proxy = faultproxy.New(t, server, func(l *faultproxy.Link) (toServer, toClient func()) {
		return func() { p.forward(l.Server, l.Client, false) }, func() { p.forward(l.Client, l.Server, true) }
	})
	return p
}

// forward passes data on until the connection ends. Both sides notice a broken connection themselves.
func (p *Proxy) forward(to io.Writer, from io.Reader, answers bool) {
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		p.proxy.Pass()
		if answers && p.losing.Load() {
			n = 0
		}
		if _, failed := to.Write(data[:n]); failed != nil || err != nil {
			return
		}
	}
}

// Address is the address of the proxy, as host:port.
func (p *Proxy) Address() string { return p.proxy.Address() }

// Accepted returns how many connections the proxy has let through.
func (p *Proxy) Accepted() int { return p.proxy.Accepted() }

// Drop breaks every connection. New ones are let through.
func (p *Proxy) Drop() { p.proxy.Drop() }

// Cut breaks every connection, and new ones too, until Restore: the server is down.
func (p *Proxy) Cut() { p.proxy.Sever() }

// Restore ends Cut and LoseAnswers.
func (p *Proxy) Restore() {
	p.losing.Store(false)
	p.proxy.Restore()
}

// Pause keeps data back in both directions, until Resume: the network stalls.
func (p *Proxy) Pause() { p.proxy.Pause() }

// Resume ends Pause. Nothing that was kept back is lost.
func (p *Proxy) Resume() { p.proxy.Resume() }

// LoseAnswers drops what the server sends, until Restore: the server does what it is asked to, and the client does not learn of it.
// Connections that have lost an answer cannot go on; break them with Drop.
func (p *Proxy) LoseAnswers() { p.losing.Store(true) }

// Redirect connects new clients to another server, which is host:port: a failover.
func (p *Proxy) Redirect(server string) { p.proxy.Redirect(server) }
