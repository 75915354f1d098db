package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// partner is the receiver of a webhook. It refuses orders with a negative total until it is corrected, and payments of an order that it has.
type partner struct {
	t        *testing.T
	receiver *webhook.Receiver
	address  string
	server   *http.Server

	mu        sync.Mutex
	corrected bool
	received  []*postrider.Message
}

func newPartner(t *testing.T) *partner {
	receiver, err := webhook.NewReceiver(webhook.ReceiverConfig{Secrets: []string{secret}})
	must(t, err)
	p := &partner{t: t, receiver: receiver, address: "127.0.0.1:0"}
	p.start()
	t.Cleanup(p.end)
	return p
}

// start listens at the address of before.
func (p *partner) start() {
	p.t.Helper()
	l, err := new(net.ListenConfig).Listen(p.t.Context(), "tcp", p.address)
	must(p.t, err)
	p.address, p.server = l.Addr().String(), &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.t.Errorf("the receiver ended: %v", err)
		}
	}(p.server)
}

// end refuses connections from then on.
func (p *partner) end() { must(p.t, p.server.Close()) }

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, err := p.receiver.Receive(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Type == "order.paid":
		http.Error(w, "payment of "+m.Key+" is there already", http.StatusConflict)
	case !p.corrected && strings.Contains(string(m.Payload), "-"):
		http.Error(w, "total of "+m.Key+" is negative", http.StatusBadRequest)
	default:
		p.received = append(p.received, m)
	}
}

func (p *partner) correct() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.corrected = true
}

// numbers are those of the orders received, by key in the order of their arrival.
func (p *partner) numbers() map[string][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string][]int)
	for _, m := range p.received {
		var order struct{ Number int }
		must(p.t, json.Unmarshal(m.Payload, &order))
		out[m.Key] = append(out[m.Key], order.Number)
	}
	return out
}

// night is an outbox on PostgreSQL with two processes of a relay, and one that serves the administration.
type night struct {
	t       *testing.T
	binary  string
	store   string
	pool    *pgxpool.Pool
	outbox  *outbox.Outbox[pgx.Tx]
	partner *partner
}

func newNight(t *testing.T) *night {
	binary, err := process.Postrider("../..")
	must(t, err)
	n := &night{t: t, binary: binary, store: database(t), partner: newPartner(t)}
	if n.pool, err = pgxpool.New(t.Context(), n.store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.pool.Close)
	n.command("migrate", "up")
	s, err := postgres.New(n.pool, postgres.Config{})
	must(t, err)
	n.outbox, err = outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	return n
}

// command runs a command to its end.
func (n *night) command(args ...string) string {
	n.t.Helper()
	out, err := exec.CommandContext(n.t.Context(), n.binary, append(args, "--store", n.store)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("postrider %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// start starts a command that goes on until the test ends, and returns its log.
func (n *night) start(name, ready string, args ...string) (log string) {
	n.t.Helper()
	log = filepath.Join(n.t.TempDir(), name+".log")
	p, err := process.Start(n.t.Context(), process.Command{
		Name: name, Path: n.binary, Args: append(args, "--store", n.store), Log: log, Ready: ready,
	})
	must(n.t, err)
	n.t.Cleanup(func() { must(n.t, p.Stop()) })
	return log
}

// publish publishes messages of 31 orders, numbered from first on.
func (n *night) publish(kind string, first, count, total int) {
	n.t.Helper()
	_, err := n.outbox.InTx(n.t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		var messages []*postrider.Message
		for i := range count {
			messages = append(messages, &postrider.Message{
				Type: kind, Topic: "orders", Key: fmt.Sprintf("order/%d", i%31), Payload: fmt.Appendf(nil, `{"number":%d,"total":%d}`, first+i, total),
			})
		}
		_, err := n.outbox.Publish(ctx, tx, messages...)
		return err
	})
	must(n.t, err)
}

// await waits until there are as many open dead letters.
func (n *night) await(dead int) {
	n.t.Helper()
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var open int
		must(n.t, n.pool.QueryRow(n.t.Context(), "select count(*) from postrider_dead where state = 'open'").Scan(&open))
		switch {
		case open == dead:
			return
		case time.Since(begun) > 2*time.Minute:
			n.t.Fatalf("%d dead letters, not %d", open, dead)
		}
	}
}

// TestNight is an incident from the alert to the record: 212 dead letters of two causes, and then a receiver that is down. Somebody signs in,
// finds out, and redrives those of the cause that is corrected: one first, the others at 50 a second. On PostgreSQL, with two processes of the
// relay.
func TestNight(t *testing.T) {
	t.Parallel()
	n := newNight(t)
	hook := "http://" + n.partner.address + "/hook#plain_http=true&allow=127.0.0.1&secret=" + secret
	n.start("relay-1", "relay works", "relay", "--publisher", hook)
	n.start("relay-2", "relay works", "relay", "--publisher", hook)
	n.publish("order.placed", 1, 200, -3)
	n.publish("order.paid", 1, 12, 3)
	n.await(212)
	n.partner.end()
	n.publish("order.placed", 1001, 20, 3)

	log, err := os.ReadFile(n.start("serve", "signin?code=", "serve", "--listen", "127.0.0.1:0", "--print-code", "--role", "operator"))
	must(t, err)
	page := browser(t)
	ctx, cancel := context.WithTimeout(page, 5*time.Minute)
	defer cancel()
	t.Cleanup(func() {
		if t.Failed() {
			shown, cancel := context.WithTimeout(page, 10*time.Second)
			defer cancel()
			text, err := chromedp.Run(shown, chromedp.Text("body"))
			t.Logf("the page, %v:\n%s", err, text)
		}
	})
	must(t, steps(ctx, chromedp.EmulateViewport(1440, 900),
		chromedp.Navigate(regexp.MustCompile(`http://\S+/signin\?code=\S+`).FindString(string(log))),
		chromedp.Click(`//button[contains(., "Sign in")]`),
		chromedp.WaitVisible(`//h1[contains(., "problems in")]`),
		chromedp.WaitVisible(`//article[contains(., "to-webhook cannot reach its destination") and contains(., "connection refused")]`)))
	n.partner.correct()
	n.partner.start()
	must(t, steps(ctx,
		chromedp.WaitNotPresent(`//article[contains(., "cannot reach its destination")]`), // the page asks again by itself
		chromedp.Click(`//article[contains(., "400 Bad Request")]//a[contains(., "Review 200")]`),
		chromedp.WaitVisible(`//h1[contains(., "200 messages to to-webhook failed for this reason")]`),
		chromedp.Click(`//button[contains(., "Review redrive of 200")]`), chromedp.WaitVisible(`#why`),
		chromedp.Click(`input[value=first]`), chromedp.SetValue(`#rate`, "50"), chromedp.SendKeys(`#why`, "partner corrected its check"),
		chromedp.Click(`//button[contains(., "Redrive 200 dead letters")]`),
		chromedp.WaitVisible(`//h1[contains(., "finished: 200 delivered")]`)))
	must(t, steps(ctx, chromedp.Click(`//nav//a[contains(., "Overview")]`), chromedp.WaitVisible(`//a[contains(., "Review 12")]`),
		chromedp.Click(`//nav//a[contains(., "Activity")]`), chromedp.WaitVisible(`//td[contains(., "partner corrected its check")]`)))

	arrived := 0
	for key, numbers := range n.partner.numbers() {
		redriven := slices.DeleteFunc(slices.Clone(numbers), func(number int) bool { return number > 1000 })
		if arrived += len(numbers); !slices.IsSorted(redriven) || len(slices.Compact(redriven)) != len(redriven) {
			t.Errorf("%s arrived as %v", key, numbers)
		}
	}
	if arrived != 220 {
		t.Errorf("%d messages have arrived, not 200 redriven ones and 20 that had waited", arrived)
	}
	if audit := n.command("audit", "--json"); strings.Count(audit, "partner corrected its check") != 1 {
		t.Errorf("on record is\n%s", audit)
	}
	if status := n.command("status", "--json"); strings.Count(status, `"alive": true`) != 2 {
		t.Errorf("the status shows other than two processes:\n%s", status)
	}
}
