package redisbroker_test

import (
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/faultproxy"
)

// proxy is a proxy for a Redis server that causes faults on demand.
type proxy struct {
	*faultproxy.Proxy

	// loseAck are texts: the answer to a request that contains one is lost, together with the connection.
	loseAck faultproxy.Marks
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	p := &proxy{}
	p.Proxy = faultproxy.New(t, server, p.serve)
	return p
}

func (p *proxy) url() string { return "redis://" + p.Address() }

func (p *proxy) serve(l *faultproxy.Link) (toServer, toClient func()) {
	var mute atomic.Bool // the next answer is lost
	toServer = func() {
		buffer := make([]byte, 1<<20)
		for {
			n, err := l.Client.Read(buffer)
			if err != nil {
				return
			}
			l.Proxy.Pass()
			if p.loseAck.TakeWhere(func(id string) bool { return holds(buffer[:n], id) }) {
				mute.Store(true)
			}
			if _, err := l.Server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	toClient = func() {
		buffer := make([]byte, 1<<20)
		for {
			n, err := l.Server.Read(buffer)
			if err != nil {
				return
			}
			l.Proxy.Pass()
			if mute.Load() {
				return
			}
			if _, err := l.Client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	return toServer, toClient
}
