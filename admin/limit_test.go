package admin_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// down is a store that cannot be read.
type down struct{ *memory.Store }

var errDown = errors.New("no connection to 10.0.0.7")

func (down) View(context.Context, store.Operation, func(store.Reader) error) error { return errDown }

// TestTokenIDs: a text that cannot be an access token does not reach the store, some of which cannot take every text.
func TestTokenIDs(t *testing.T) {
	t.Parallel()
	service := admin.New(down{memory.New(memory.Config{})}, admin.Config{})
	for _, id := range []string{"x", "abcdefghi\x00", "ABCDEFGHIJ", strings.Repeat("a", 600), "\xff\xffcdefghij"} {
		if _, err := service.Authenticate(t.Context(), "pr_"+id+"_AAAA", admin.UsePeople); !errors.Is(err, admin.ErrToken) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := service.Authenticate(t.Context(), "pr_abcdefghi7_AAAA", admin.UsePeople); !errors.Is(err, errDown) {
		t.Errorf("a token while the store is down: %v", err)
	}
}

// TestInputIsChecked: what a caller got wrong is an ErrInput, and not a failure of the store.
func TestInputIsChecked(t *testing.T) {
	t.Parallel()
	_, service := withDead(t, 1)
	r, err := service.StartReview(t.Context(), operator, admin.ReviewRedrive, store.DeadFilter{})
	must(t, err)
	x := admin.Execution{Digest: r.Digest, Reason: "fixed", Rate: -1}
	if _, _, err := service.ExecuteReview(t.Context(), operator, r.ID, x); !errors.Is(err, admin.ErrInput) {
		t.Errorf("a rate of -1: %v", err)
	}
	d := store.Decision{Relay: "view", MessageID: "m", Verb: store.VerbDeadAll, Reason: "broken"}
	if _, err := service.Decide(t.Context(), operator, d); !errors.Is(err, admin.ErrInput) {
		t.Errorf("all of a message: %v", err)
	}
	deep := []byte(strings.Repeat("[", 80) + strings.Repeat("]", 80))
	if _, err := admin.ForEditing(admin.Rule{All: true}, deep); !errors.Is(err, admin.ErrInput) {
		t.Errorf("a deep payload: %v", err)
	}
	if _, err := admin.AfterEdit(admin.Rule{All: true, Hide: []string{"/a"}}, []byte(`{"a":1,"a":2}`), "{}"); !errors.Is(err, admin.ErrInput) {
		t.Errorf("a hidden value twice: %v", err)
	}
}

// TestOverviewDoesNotBlock: a caller whose context ends does not wait for another one, who waits for the store.
func TestOverviewDoesNotBlock(t *testing.T) {
	t.Parallel()
	reading, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	s := memory.New(memory.Config{Fault: func(string, bool) error {
		if once.CompareAndSwap(false, true) {
			close(reading)
			<-release
		}
		return nil
	}})
	service := admin.New(s, admin.Config{})
	ended := make(chan error)
	go func() {
		_, err := service.Overview(context.WithoutCancel(t.Context()), viewer)
		ended <- err
	}()
	<-reading
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := make(chan error, 1)
	go func() {
		_, err := service.Overview(ctx, viewer)
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second caller: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a second caller waits although its context has ended")
	}
	close(release)
	must(t, <-ended)
}

// slow is a store that takes a while to count causes.
type slow struct {
	*memory.Store
	counted int
}

func (s *slow) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	if op.Method == "CountCauses" {
		s.counted++
		time.Sleep(500 * time.Millisecond)
	}
	return s.Store.View(ctx, op, do)
}

// TestCausesAreCountedSeldom: somebody who looks at the overview every second has causes counted for a twentieth of the time, and sees what
// was changed here at once.
func TestCausesAreCountedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept, _ := withDead(t, 1)
		s := &slow{Store: kept}
		service := admin.New(s, admin.Config{})
		look := func() admin.Overview {
			o, err := service.Overview(t.Context(), viewer)
			must(t, err)
			return o
		}
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Second) {
			look()
		}
		if s.counted < 5 || s.counted > 7 {
			t.Errorf("causes were counted %d times in a minute", s.counted)
		}
		before := len(look().Problems)
		must(t, service.DiscardDead(t.Context(), operator, 1, "duplicate"))
		if after := len(look().Problems); after != before-1 {
			t.Errorf("%d problems before the only dead letter is discarded, %d after it", before, after)
		}
	})
}

// counting counts the reads of a store.
type counting struct {
	*memory.Store
	reads int
}

func (c *counting) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	c.reads++
	return c.Store.View(ctx, op, do)
}

// TestActivityReadsLittle: a call reads a limited part of the audit, however few entries in it are the caller's, and says where to
// continue.
func TestActivityReadsLittle(t *testing.T) {
	t.Parallel()
	s := &counting{Store: memory.New(memory.Config{})}
	service := admin.New(s, admin.Config{})
	ctx := t.Context()
	refused := func(p admin.Principal) {
		if _, err := service.Tokens(ctx, p); !errors.Is(err, admin.ErrForbidden) {
			t.Fatal(err)
		}
	}
	refused(operator)
	other := operator
	other.Subject = "otto"
	for range 2100 {
		refused(other)
	}
	refused(operator)
	s.reads = 0
	own, next, err := service.Activity(ctx, operator, "", 5)
	if must(t, err); len(own) != 1 || next == "" || s.reads > 10 {
		t.Errorf("%d entries, next %q, after %d reads", len(own), next, s.reads)
	}
	own, next, err = service.Activity(ctx, operator, next, 5)
	if must(t, err); len(own) != 1 || next != "" {
		t.Errorf("then %d entries, next %q", len(own), next)
	}
	all := map[string]bool{}
	for next, more := "", true; more; more = next != "" {
		var page []admin.Entry
		page, next, err = service.Activity(ctx, boss, next, 150)
		must(t, err)
		for _, e := range page {
			all[e.ID] = true
		}
	}
	if len(all) != 2102 {
		t.Errorf("all pages have %d entries, want 2102", len(all))
	}
}

// queued is a store with a held key that has any number of messages, several of which have the same ID.
type queued struct{ *memory.Store }

func (s queued) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	return s.Store.View(ctx, op, func(r store.Reader) error { return do(queuedReader{r}) })
}

func (s queued) Change(ctx context.Context, op store.Operation, do func(store.Writer) error) error {
	return s.Store.Change(ctx, op, func(w store.Writer) error { return do(queuedWriter{w}) })
}

type queuedReader struct{ store.Reader }

func (queuedReader) HeldKey(context.Context, string, string) (store.HeldInfo, error) {
	return store.HeldInfo{}, nil
}

func (queuedReader) Queued(_ context.Context, _, _ string, limit int) (out []store.ParkedInfo, err error) {
	for range limit {
		out = append(out, store.ParkedInfo{Message: &postrider.Message{}})
	}
	return out, nil
}

type queuedWriter struct{ store.Writer }

func (queuedWriter) ParkedByID(_ context.Context, _, id string) ([]store.ParkedInfo, error) {
	p := store.ParkedInfo{Message: &postrider.Message{ID: id}, DueAt: time.Now()}
	return []store.ParkedInfo{p, p}, nil
}

// TestHeldKeyShowsAHundred: the number of messages is limited, whatever the caller asks for.
func TestHeldKeyShowsAHundred(t *testing.T) {
	t.Parallel()
	service := admin.New(queued{memory.New(memory.Config{})}, admin.Config{Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}})
	for limit, want := range map[int]int{0: 0, 7: 7, 1000: 100} {
		if _, found, err := service.HeldKey(t.Context(), viewer, "view", "k", limit); err != nil || len(found) != want {
			t.Errorf("of %d: %d, %v", limit, len(found), err)
		}
	}
}

// TestSeveralParked: a decision about one of several messages with the same ID has an error of its own.
func TestSeveralParked(t *testing.T) {
	t.Parallel()
	service := admin.New(queued{memory.New(memory.Config{})}, admin.Config{})
	d := store.Decision{Relay: "view", MessageID: "m", Verb: store.VerbRetry}
	if _, err := service.Decide(t.Context(), operator, d); !errors.Is(err, held.ErrSeveral) {
		t.Error(err)
	}
}

// TestHolding: a relay whose held keys wait is not behind, for its backlog is on time, and does not deliver what it holds.
func TestHolding(t *testing.T) {
	t.Parallel()
	one := store.Count{N: 1}
	r := store.RelayStatus{Name: "to-nats", Parked: one, Held: one, OldestUndelivered: time.Second, Owners: []store.OwnerStatus{{Alive: true}}}
	want := func(word admin.Word, when string) {
		t.Helper()
		if got := admin.StatusOf(r, time.Minute); got != word {
			t.Errorf("%s: %s, want %s", when, got, word)
		}
	}
	want(admin.Holding, "only a held key is left")
	r.OldestUndelivered = time.Hour
	want(admin.Holding, "and has been for an hour")
	r.Parked = store.Count{}
	want(admin.Holding, "and its message is a dead letter that waits for a decision")
	r.Backlog, r.Age = one, time.Second
	want(admin.Holding, "next to a backlog on time")
	r.Age = 90 * time.Second
	want(admin.Late, "next to a backlog that is late")
	r.Backlog, r.Age, r.Held, r.Parked = store.Count{}, 0, store.Count{}, one
	want(admin.Late, "when no key is held")
}

// TestWhatIsNotDueIsNotLate: a message whose delivery time has not come makes no relay late, however long it has been parked.
func TestWhatIsNotDueIsNotLate(t *testing.T) {
	t.Parallel()
	r := store.RelayStatus{
		Name: "to-nats", Parked: store.Count{N: 1}, OldestParked: 2 * time.Hour, Owners: []store.OwnerStatus{{Alive: true}},
	}
	if got := admin.StatusOf(r, time.Minute); got != admin.Delivering {
		t.Errorf("with a message that is due tomorrow: %s", got)
	}
	if r.OldestUndelivered = 2 * time.Hour; admin.StatusOf(r, time.Minute) != admin.Late {
		t.Errorf("with a message that is retried for two hours: %s", admin.StatusOf(r, time.Minute))
	}
}
