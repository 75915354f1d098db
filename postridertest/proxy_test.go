package postridertest_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/postrider/postrider/postridertest"
)

// echo starts a server that returns each line with its name.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintf(conn, "%s %s\n", name, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String()
}

// client is a connection through the proxy.
type client struct {
	net.Conn
	answers *bufio.Scanner
}

func dial(t *testing.T, p *postridertest.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, bufio.NewScanner(conn)}
}

// ask returns the answer to a line, "" if the connection is broken.
func (c *client) ask(line string) string {
	if _, err := fmt.Fprintln(c, line); err != nil || !c.answers.Scan() {
		return ""
	}
	return c.answers.Text()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p := postridertest.NewProxy(t, echo(t, "one"))
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	c := dial(t, p)
	want("through the proxy", c.ask("a"), "one a")
	p.Drop()
	want("after Drop", c.ask("b"), "")
	c = dial(t, p)
	want("a new connection", c.ask("c"), "one c")
	p.Cut()
	want("cut", c.ask("d"), "")
	want("a new connection while cut", dial(t, p).ask("e"), "")
	p.Restore()
	c = dial(t, p)
	want("restored", c.ask("f"), "one f")

	p.Pause()
	answer := make(chan string)
	go func() { answer <- c.ask("g") }()
	select {
	case got := <-answer:
		t.Errorf("paused: %q", got)
	case <-time.After(20 * time.Millisecond): // nothing can show that no answer will come
	}
	p.Resume()
	want("resumed", <-answer, "one g")

	p.LoseAnswers()
	go func() { answer <- c.ask("h") }()
	select {
	case got := <-answer:
		t.Errorf("the answer was not lost: %q", got)
	case <-time.After(20 * time.Millisecond):
	}
	p.Drop()
	want("dropped", <-answer, "")
	p.Restore()
	p.Redirect(echo(t, "two"))
	want("redirected", dial(t, p).ask("i"), "two i")
	if n := p.Accepted(); n != 4 {
		t.Errorf("%d connections were let through, want 4", n)
	}
}
