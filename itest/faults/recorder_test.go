package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/itest/crash"
)

// recorder receives the messages of a relay. It knows which calls are running.
type recorder struct {
	// work is how long a call takes.
	work time.Duration

	mu        sync.Mutex
	failing   float64 // the fraction of calls that fail
	random    *rand.Rand
	delivered []crash.Fact
	calls     int
	failures  int // calls that returned an error
	cut       int // calls whose caller went away
	running   map[int64]*call
	overlaps  []string
}

// call is a running call.
type call struct {
	fact crash.Fact
	// after is the earlier call of the same key that has not returned, if any.
	after *call
}

func newRecorder() *recorder { return &recorder{running: map[int64]*call{}} }

// fail makes a fraction of the calls fail, as random decides.
func (r *recorder) fail(share float64, random *rand.Rand) {
	r.failing, r.random = share, rand.New(rand.NewPCG(random.Uint64(), 0))
}

// handle records a message. An error is a failed attempt.
func (r *recorder) handle(ctx context.Context, m *postrider.Message) error {
	var f crash.Fact
	if err := json.Unmarshal(m.Payload, &f); err != nil {
		return err
	}
	return r.take(ctx, f)
}

func (r *recorder) take(ctx context.Context, f crash.Fact) error {
	c := &call{fact: f}
	r.mu.Lock()
	r.calls++
	c.after = r.running[f.Account]
	r.running[f.Account] = c
	failed := r.failing > 0 && r.random.Float64() < r.failing
	if !failed {
		r.delivered = append(r.delivered, f)
	}
	r.mu.Unlock()
	if r.work > 0 {
		select {
		case <-time.After(r.work):
		case <-ctx.Done():
		}
	}
	if later := r.end(c); later != nil {
		// A caller that has gone away no longer waits, but a server notices that some time later.
		select {
		case <-ctx.Done():
		case <-time.After(noticed):
			r.mu.Lock()
			r.overlaps = append(r.overlaps, fmt.Sprintf("%s began while %s was under way", later.fact, f))
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		r.cut++
		return ctx.Err()
	case failed:
		r.failures++
		return errors.New("failed at random")
	}
	return nil
}

// noticed is the time within which a server notices that a caller has gone away.
const noticed = 30 * time.Second

// end ends a call, and returns the call of the same key that began meanwhile.
func (r *recorder) end(c *call) (later *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[c.fact.Account] == c {
		delete(r.running, c.fact.Account)
		return nil
	}
	for _, later := range r.running {
		if later.after == c {
			return later
		}
	}
	return nil
}

// serve receives webhooks.
func (r *recorder) serve(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var envelope struct {
			Data crash.Fact `json:"data"`
		}
		if err == nil {
			err = json.Unmarshal(body, &envelope)
		}
		if err == nil {
			err = r.take(req.Context(), envelope.Data)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// seen returns what was delivered so far.
func (r *recorder) seen() []crash.Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.delivered)
}

// missing counts the facts that have not been delivered.
func missing(facts, delivered []crash.Fact) int {
	c := crash.NewChecker(facts)
	for _, f := range delivered {
		c.Receive(f)
	}
	return c.Missing()
}

// check compares what was delivered with what was committed: nothing lost, nothing overtaken, and no concurrent calls of
// a key. Commits on a server that is gone may have been delivered (phantoms).
func (r *recorder) check(t *testing.T, name string, facts []crash.Fact, phantoms bool) {
	t.Helper()
	delivered := r.seen()
	checkOrder(t, name, facts, delivered, phantoms)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%s: %d calls, %d failed, %d were cut", name, r.calls, r.failures, r.cut)
	if n := len(r.overlaps); n > 0 {
		t.Errorf("a promise broke: %s: %d calls began while another of their key was under way: %q", name, n, r.overlaps[:min(n, 5)])
	}
}

func checkOrder(t *testing.T, name string, facts, delivered []crash.Fact, phantoms bool) crash.Outcome {
	t.Helper()
	all := len(delivered)
	if phantoms {
		committed := setOf(facts)
		delivered = slices.DeleteFunc(slices.Clone(delivered), func(f crash.Fact) bool { return !committed[f] })
	}
	c := crash.NewChecker(facts)
	for _, f := range delivered {
		c.Receive(f)
	}
	v := c.Outcome()
	t.Logf("%s: %s, phantoms %d", name, v, all-len(delivered))
	if !v.Kept() {
		t.Errorf("%s: a promise broke: %s: %q", name, v, v.Examples)
	}
	if jumps := jumps(facts, delivered); len(jumps) > 0 {
		t.Errorf("a promise broke: %s: %d deliveries left messages of their key out: %q", name, len(jumps), jumps[:min(len(jumps), 5)])
	}
	return v
}

func setOf(facts []crash.Fact) map[crash.Fact]bool {
	set := make(map[crash.Fact]bool, len(facts))
	for _, f := range facts {
		set[f] = true
	}
	return set
}

// jumps finds deliveries that do not follow the previous one of their key. A relay may go back to an earlier message, and
// then continues in order from there. Messages that were never committed do not count.
func jumps(facts, delivered []crash.Fact) []string {
	committed, last := setOf(facts), map[int64]int64{}
	var out []string
	for _, f := range delivered {
		if !committed[f] {
			continue
		}
		if f.Counter > last[f.Account]+1 {
			out = append(out, fmt.Sprintf("%s after step %d", f, last[f.Account]))
		}
		last[f.Account] = f.Counter
	}
	return out
}
