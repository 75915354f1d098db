package protect_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/protect"
)

// BenchmarkCall is what a protected call of a handler costs: a goroutine.
func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		if err := protect.Call(func() error { return nil }, func(any, string) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatch is what a goroutine costs that waits until a call is over, and a timer that would begin one only later.
func BenchmarkWatch(b *testing.B) {
	b.Run("goroutine", func(b *testing.B) {
		for b.Loop() {
			ctx, cancel := context.WithCancel(b.Context())
			go func() { <-ctx.Done() }()
			cancel()
		}
	})
	b.Run("timer", func(b *testing.B) {
		for b.Loop() {
			time.AfterFunc(5*time.Millisecond, func() {}).Stop()
		}
	})
}

// BenchmarkRoundTrip is the least that a round trip to a database can cost: a byte there and back over the loopback interface.
func BenchmarkRoundTrip(b *testing.B) {
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c) // until it is closed
	}()
	c, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	buf := make([]byte, 1)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
