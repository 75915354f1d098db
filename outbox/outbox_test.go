package outbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

func TestNewReportsEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New[fakeTx](nil, Config{Source: "my service", MaxPayload: -1})
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"no store", "source is not a URI-reference", "MaxPayload is -1 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if _, err := New((*fakeStore)(nil), Config{}); err == nil || !strings.Contains(err.Error(), "source is required") {
		t.Errorf("got %v", err)
	}
	if _, err := New(&fakeStore{}, Config{Source: "orders", MaxPayload: 64<<20 + 1}); err == nil {
		t.Error("more than 64 MiB are allowed")
	}
}

func TestPublishFillsDefaultsIntoCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{})
		given := []*postrider.Message{{Type: "order.placed", Payload: []byte("1"), Sequence: 7, Attempt: 2, CreatedAt: time.Now()}, message("b")}
		before := []postrider.Message{*given[0], *given[1]}
		into := &tx{}
		ids, err := b.Publish(t.Context(), into, given...)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != 2 || len(ids[0]) != 36 || ids[1] != "b" {
			t.Errorf("IDs: %q", ids)
		}
		for i := range given {
			if fmt.Sprintf("%#v", *given[i]) != fmt.Sprintf("%#v", before[i]) {
				t.Errorf("the caller's message was changed to %+v", *given[i])
			}
		}
		want := postrider.Message{ID: ids[0], Type: "order.placed", Topic: "order.placed", Source: "orders", Time: time.Now().UTC(),
			ContentType: "application/json", Payload: []byte("1")}
		if got := *into.msgs[0]; fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Errorf(" got %#v\nwant %#v", got, want)
		}
		if !slices.Equal(b.store.inserts, []int{2}) || b.store.calls != nil {
			t.Errorf("want one Insert and nothing else, got %v and %v", b.store.inserts, b.store.calls)
		}
	})
}

func TestPublishNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	ids, err := b.Publish(t.Context(), &tx{})
	if err != nil || len(ids) != 0 || b.store.inserts != nil {
		t.Errorf("got %q, %v, %v", ids, err, b.store.inserts)
	}
}

func TestPublishNeedsATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for name, into := range map[string]fakeTx{"nil": nil, "nil pointer": (*tx)(nil), "ended": &tx{ended: true}} {
		if _, err := b.Publish(t.Context(), into, message("a")); !errors.Is(err, store.ErrNoTransaction) {
			t.Errorf("%s: Publish returned %v", name, err)
		}
		if _, err := b.PublishSeq(t.Context(), into, seqOf(message("a"))); !errors.Is(err, store.ErrNoTransaction) {
			t.Errorf("%s: PublishSeq returned %v", name, err)
		}
	}
}

func TestPublishIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{MaxPayload: 10})
	into := &tx{}
	_, err := b.Publish(t.Context(), into, message("a"), &postrider.Message{Key: "\x00"}, nil,
		&postrider.Message{Type: "t", Payload: make([]byte, 11)})
	invalid, ok := errors.AsType[*postrider.ValidationError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	want := []string{
		"message 1: type is required", "message 1: topic is required", "message 1: key has a NUL byte", "message 2: is nil",
		"message 3: payload is 11 bytes long, the limit is 10",
	}
	requireStrings(t, "faults", strings.Split(invalid.Error(), "\n"), want...)
	if b.store.inserts != nil {
		t.Error("something was written")
	}
}

// TestPublishRefusesTheTypeOfErasedMessages: relays skip them, so the message would be lost.
func TestPublishRefusesTheTypeOfErasedMessages(t *testing.T) {
	t.Parallel()
	b, into := setup(t, Config{}), &tx{}
	m := message("1")
	m.Type = store.ErasedType
	_, err := b.Publish(t.Context(), into, m)
	for _, err := range []error{err, b.Check(m)} {
		if invalid, ok := errors.AsType[*postrider.ValidationError](err); !ok || invalid.Faults[0].Field != "type" || len(into.msgs) > 0 {
			t.Errorf("published: %v, %v; want the type refused", err, idsOf(into.msgs))
		}
	}
}

// TestPublishedMessageIsNoReplay: a handler may pass on the headers of a message that was replayed. Consumers by position skip replayed
// messages.
func TestPublishedMessageIsNoReplay(t *testing.T) {
	t.Parallel()
	b, into := setup(t, Config{}), &tx{}
	m := message("1")
	m.Headers = map[string]string{"trace": "t", postrider.HeaderReplay: "r", postrider.HeaderReplayFor: "billing"}
	if _, err := b.Publish(t.Context(), into, m); err != nil {
		t.Fatal(err)
	}
	if h := into.msgs[0].Headers; len(h) != 1 || h["trace"] != "t" || len(m.Headers) != 3 {
		t.Errorf("published with headers %v; the caller's are now %v", h, m.Headers)
	}
}

func TestPublishInAHandlerNamesItsCause(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	publish := func(handled, m *postrider.Message) *postrider.Message {
		t.Helper()
		into := &tx{}
		if _, err := b.Publish(postrider.ContextWithMessage(t.Context(), handled), into, m); err != nil {
			t.Fatal(err)
		}
		return into.msgs[0]
	}
	for _, c := range []struct{ handled, published, want postrider.Message }{
		{postrider.Message{ID: "1"}, postrider.Message{}, postrider.Message{CorrelationID: "1", CausationID: "1"}},
		{postrider.Message{ID: "2", CorrelationID: "1", Tenant: "acme"}, postrider.Message{}, postrider.Message{CorrelationID: "1", CausationID: "2", Tenant: "acme"}},
		{postrider.Message{ID: "2", CorrelationID: "1", Tenant: "acme"}, postrider.Message{CorrelationID: "x", CausationID: "y", Tenant: "z"},
			postrider.Message{CorrelationID: "x", CausationID: "y", Tenant: "z"}},
	} {
		c.published.Type = "t"
		got := publish(&c.handled, &c.published)
		if got.CorrelationID != c.want.CorrelationID || got.CausationID != c.want.CausationID || got.Tenant != c.want.Tenant {
			t.Errorf("handling %+v: got %+v", c.handled, got)
		}
	}
}

// TestForeignCauseIsShortened: a handler of a message of another sender, which need not keep the limits, can still publish.
func TestForeignCauseIsShortened(t *testing.T) {
	t.Parallel()
	b, long := setup(t, Config{}), strings.Repeat("long", 100)
	for _, handled := range []postrider.Message{{ID: long}, {ID: "\x001"}, {ID: "1", CorrelationID: long, Tenant: long}, {ID: "1", Tenant: "\xff"}} {
		into := &tx{}
		_, err := b.Publish(postrider.ContextWithMessage(t.Context(), &handled), into, &postrider.Message{Type: "t"})
		if err != nil || handled.CorrelationID == long && (!strings.HasPrefix(into.msgs[0].CorrelationID, "longlong") || into.msgs[0].CausationID != "1") {
			t.Errorf("handling %.40q: published %+v (%v)", handled.ID, into.msgs, err)
		}
	}
}

type propagator struct{}

func (propagator) Inject(ctx context.Context, h map[string]string) {
	if trace, ok := ctx.Value(propagator{}).(string); ok {
		h["traceparent"] = trace
	}
}
func (propagator) Extract(ctx context.Context, _ map[string]string) context.Context { return ctx }

func TestPublishInjectsHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Propagator: propagator{}})
	m := message("a")
	m.Headers = map[string]string{"own": "1", "traceparent": "of the handled message"}
	into := &tx{}
	if _, err := b.Publish(context.WithValue(t.Context(), propagator{}, "new"), into, m, message("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Publish(t.Context(), into, message("c")); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(into.msgs[0].Headers, into.msgs[1].Headers, into.msgs[2].Headers)
	if want := "map[own:1 traceparent:new] map[traceparent:new] map[]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if m.Headers["traceparent"] != "of the handled message" {
		t.Error("the caller's headers were changed")
	}
}

func TestBeforePublish(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	hook := func(_ context.Context, m *postrider.Message) error {
		m.Headers["seen"] = m.ID + m.Source + m.Topic
		switch m.ID {
		case "suppress":
			return fmt.Errorf("unwanted: %w", ErrSuppress)
		case "fail":
			return broken
		case "empty":
			m.Topic = ""
		case "spoil":
			m.Key = "\xff"
		}
		return nil
	}
	second := func(_ context.Context, m *postrider.Message) error {
		m.Headers["seen"] += "+"
		return nil
	}
	b := setup(t, Config{Hooks: []Hooks{{BeforePublish: hook}, {}, {BeforePublish: second}}})

	m := message("a")
	m.Headers = map[string]string{"own": "1"}
	into := &tx{}
	ids, err := b.Publish(t.Context(), into, m, message("suppress"), message("empty"))
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a", "", "empty")
	requireStrings(t, "written", idsOf(into.msgs), "a", "empty")
	if got := fmt.Sprint(into.msgs[0].Headers); got != "map[own:1 seen:aordersorder.placed+]" {
		t.Errorf("headers: %s", got)
	}
	if len(m.Headers) != 1 {
		t.Error("the caller's headers were changed")
	}
	if into.msgs[1].Topic != "order.placed" {
		t.Error("a field that the hook emptied has no default")
	}

	if _, err := b.Publish(t.Context(), into, message("b"), message("fail")); !errors.Is(err, broken) ||
		err.Error() != `before publishing message 1 (type "order.placed"): broken` {
		t.Errorf("got %v", err)
	}
	_, err = b.Publish(t.Context(), into, message("suppress"), message("spoil"))
	if invalid, ok := errors.AsType[*postrider.ValidationError](err); !ok || invalid.Faults[0].Index != 1 {
		t.Errorf("got %v", err)
	}
	if len(into.msgs) != 2 {
		t.Error("something was written in spite of an error")
	}
}

func seqOf(msgs ...*postrider.Message) iter.Seq2[*postrider.Message, error] {
	return func(yield func(*postrider.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func TestPublishSeqWritesInChunks(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	n, err := b.PublishSeq(t.Context(), &tx{}, func(yield func(*postrider.Message, error) bool) {
		for range 100_000 {
			if !yield(&postrider.Message{Type: "t"}, nil) {
				return
			}
		}
	})
	if err != nil || n != 100_000 {
		t.Fatalf("got %d, %v", n, err)
	}
	if len(b.store.inserts) != 100 || slices.Max(b.store.inserts) != 1000 {
		t.Errorf("inserts: %v", b.store.inserts)
	}

	b = setup(t, Config{})
	large := &postrider.Message{Type: "t", Payload: make([]byte, 1<<20)}
	if n, err := b.PublishSeq(t.Context(), &tx{}, seqOf(slices.Repeat([]*postrider.Message{large}, 10)...)); err != nil || n != 10 {
		t.Fatalf("got %d, %v", n, err)
	}
	if !slices.Equal(b.store.inserts, []int{4, 4, 2}) {
		t.Errorf("inserts of large messages: %v", b.store.inserts)
	}
}

func TestPublishSeqStopsAtAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	many := slices.Repeat([]*postrider.Message{{Type: "t"}}, 1500)
	for name, c := range map[string]struct {
		last    func(yield func(*postrider.Message, error) bool)
		fail    error
		want    string
		written int
	}{
		"of the stream":  {func(y func(*postrider.Message, error) bool) { y(nil, broken) }, nil, "read message 1500 to publish: broken", 1000},
		"of a message":   {func(y func(*postrider.Message, error) bool) { y(&postrider.Message{Type: "t", Key: "\xff"}, nil) }, nil, "message 1500: key is not UTF-8", 1000},
		"of no message":  {func(y func(*postrider.Message, error) bool) { y(nil, nil) }, nil, "message 1500: is nil", 1000},
		"of the store":   {func(y func(*postrider.Message, error) bool) {}, broken, "publish 1000 messages: broken", 0},
		"of nothing new": {func(y func(*postrider.Message, error) bool) {}, nil, "<nil>", 1500},
	} {
		b := setup(t, Config{})
		b.store.fail["Insert"] = c.fail
		n, err := b.PublishSeq(t.Context(), &tx{}, func(yield func(*postrider.Message, error) bool) {
			for m := range slices.Values(many) {
				if !yield(m, nil) {
					return
				}
			}
			c.last(yield)
		})
		if n != c.written || fmt.Sprint(err) != c.want {
			t.Errorf("error %s: got %d and %q, want %d and %q", name, n, fmt.Sprint(err), c.written, c.want)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o, err := New(nothing{}, Config{Source: "orders"})
			if err != nil {
				b.Fatal(err)
			}
			msgs := make([]*postrider.Message, n)
			for i := range msgs {
				msgs[i] = &postrider.Message{Type: "order.placed", Key: "order/42", Payload: make([]byte, 500)}
			}
			into := new(int)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := o.Publish(b.Context(), into, msgs...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}

// nothing is a store that does nothing, so that benchmarks measure only the outbox.
type nothing struct{}

func (nothing) Begin(context.Context) (*int, error)                               { return new(int), nil }
func (nothing) Commit(context.Context, *int) error                                { return nil }
func (nothing) Rollback(context.Context, *int) error                              { return nil }
func (nothing) Insert(context.Context, *int, []*postrider.Message) error          { return nil }
func (nothing) Written(_ context.Context, _ *int, ids []string) ([]string, error) { return ids, nil }
func (nothing) Published(context.Context, *int) ([]*postrider.Message, error)     { return nil, nil }
func (nothing) Wake(...string)                                                    {}

type spanKey struct{}

// spans injects the number of the span in a context.
type spans struct{}

func (spans) Inject(ctx context.Context, headers map[string]string) {
	headers["span"] = fmt.Sprint(ctx.Value(spanKey{}))
}

func (spans) Extract(ctx context.Context, _ map[string]string) context.Context { return ctx }

// TestPublishSeqIsObservedByChunk: the messages of a chunk belong to the span of the call that writes it. A stream that ends
// with a chunk has no empty one.
func TestPublishSeqIsObservedByChunk(t *testing.T) {
	t.Parallel()
	began := 0
	b := setup(t, Config{Propagator: spans{}, Observer: &observe.Outbox{
		Publishing: func(ctx context.Context, _ []*postrider.Message) context.Context {
			began++
			return context.WithValue(ctx, spanKey{}, began)
		},
	}})
	into := &tx{}
	if _, err := b.PublishSeq(t.Context(), into, seqOf(slices.Repeat([]*postrider.Message{{Type: "t"}}, 2000)...)); err != nil {
		t.Fatal(err)
	}
	if first, last := into.msgs[0].Headers["span"], into.msgs[1999].Headers["span"]; began != 2 || first != "1" || last != "2" {
		t.Errorf("%d calls; the first message belongs to span %s, the last to %s", began, first, last)
	}
}
