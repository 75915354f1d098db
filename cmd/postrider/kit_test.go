package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
	"github.com/postrider/postrider/relay"
)

// result is the result of running the program.
type result struct {
	code     int
	out, err string
}

// invocation is a run of the program in the test's process.
type invocation struct {
	stdin    string
	environ  []string
	terminal bool // all streams are terminals of 100 columns
	args     []string
}

func (i invocation) run(t *testing.T) result {
	t.Helper()
	var out, errs syncBuffer
	p := &Program{
		Stdin: strings.NewReader(i.stdin), Stdout: &out, Stderr: &errs, Environ: append(i.environ, "USER=tester"),
		Exit:     func(int) { t.Error("ended at once") },
		Terminal: func(any) (int, bool) { return 100, i.terminal },
	}
	return result{p.Run(t.Context(), i.args), out.String(), errs.String()}
}

// run runs the program with only arguments.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return invocation{args: args}.run(t)
}

// ok runs the program, which must succeed, and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, args...)
	if r.code != exitDone {
		t.Fatalf("postrider %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// fails runs the program, which must exit with a code and print certain words to standard error.
func fails(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	expect(t, run(t, args...), code, words, args...)
}

func expect(t *testing.T, r result, code int, words string, args ...string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.err, words) {
		t.Errorf("postrider %s: exit code %d, want %d; standard error:\n%s\nwant %q in it", strings.Join(args, " "), r.code, code, r.err, words)
	}
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

// newOutbox returns the URL of a fresh outbox in a SQLite file.
func newOutbox(t *testing.T) string {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	ok(t, "migrate", "up", "--store", url)
	return url
}

// openOutbox opens an outbox next to the program.
func openOutbox(t *testing.T, url string) *backend.Outbox {
	t.Helper()
	o, err := backend.Open(t.Context(), config.Store{URL: url}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

var tester = relay.Owner{ID: "tester-1", Host: "here", Version: "v0"}

// acquire returns a request for the leases of partitions.
func acquire(partitions ...int) relay.AcquireRequest {
	req := relay.AcquireRequest{TTL: time.Minute}
	for _, p := range partitions {
		req.Claims = append(req.Claims, relay.Claim{Partition: p, Token: relay.NewToken()})
	}
	return req
}

// settleAll makes a relay of the given name read the whole log and settle each record as decide says.
func settleAll(t *testing.T, o *backend.Outbox, name string, decide func(s *relay.Settlement, r relay.Record)) {
	t.Helper()
	ctx := t.Context()
	total, err := o.Partitions(ctx)
	must(t, err)
	_, err = o.Heartbeat(ctx, name, tester, time.Minute)
	must(t, err)
	all := make([]int, total)
	for i := range all {
		all[i] = i
	}
	leases, err := o.Acquire(ctx, name, tester, acquire(all...))
	must(t, err)
	req := relay.FetchRequest{Limit: 10_000, MaxBytes: 64 << 20}
	byPartition := map[int]relay.Lease{}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, relay.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
		byPartition[l.Partition] = l
	}
	batches, err := o.Fetch(ctx, name, req)
	must(t, err)
	for _, b := range batches {
		l := byPartition[b.Partition]
		s := relay.Settlement{Partition: b.Partition, Token: l.Token, Number: l.Settled + 1, Cursor: b.Next, Moved: true}
		for _, r := range b.Records {
			decide(&s, r)
		}
		out, err := o.Settle(ctx, name, []relay.Settlement{s})
		must(t, err)
		if len(out.Lost)+len(out.Failed) > 0 {
			t.Fatalf("settled: %+v", out)
		}
	}
	must(t, o.Leave(ctx, name, tester))
}

// bury dead-letters everything in the log.
func deadLetterOne(t *testing.T, url, name string) {
	t.Helper()
	settleAll(t, openOutbox(t, url), name, func(s *relay.Settlement, r relay.Record) {
		s.Dead = append(s.Dead, relay.Dead{
			Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: "attempts exhausted", Cause: "receiver says no", Attempts: 10,
		})
	})
}

// hold holds every key in the log, with its first message as the blocking message.
func hold(t *testing.T, url, name string) {
	t.Helper()
	held := map[string]bool{}
	settleAll(t, openOutbox(t, url), name, func(s *relay.Settlement, r relay.Record) {
		m := r.Message
		p := relay.Parked{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: relay.ParkHeld, Waits: true}
		if !held[m.Key] {
			held[m.Key] = true
			p.Reason, p.Attempts, p.Cause = relay.ParkRetry, 3, "receiver says no"
			s.Held = append(s.Held, relay.HeldKey{
				Key: m.Key, Sequence: m.Sequence, Reason: relay.ParkRetry, Cause: p.Cause, Attempts: 3, After: time.Hour,
			})
		}
		s.Parked = append(s.Parked, p)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publishKeys publishes one message for each key, in order.
func publishKeys(t *testing.T, url string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		ok(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--key", key, "--payload", `{"key":"`+key+`"}`)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// syncBuffer is a buffer for concurrent use that can be waited on.
type syncBuffer struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{}
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// await waits until the buffer contains a text.
func (b *syncBuffer) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		b.mu.Lock()
		found := strings.Contains(b.buffer.String(), text)
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waited for %q in:\n%s", text, b.String())
		}
	}
}

// delivered settles a record as delivered.
func delivered(s *relay.Settlement, r relay.Record) {
	s.Delivered = append(s.Delivered, r.Message.Sequence)
	s.DeliveredCount++
}
