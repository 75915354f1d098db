package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// caused publishes a message with an ID and that of its cause.
func (b bundle) caused(id, cause string) {
	b.t.Helper()
	b.insert(caused(id, cause))
}

func (b bundle) insert(msgs ...*postrider.Message) {
	b.t.Helper()
	tx, err := b.Begin(b.t.Context())
	b.must(err)
	b.must(b.Insert(b.t.Context(), tx, msgs))
	b.must(b.Commit(b.t.Context(), tx))
}

func caused(id, cause string) *postrider.Message {
	m := message(id, "order/42")
	m.CausationID, m.CorrelationID = cause, "process-1"
	return m
}

func source(name string, s inspect.Store) inspect.Source {
	return inspect.Source{Name: name, Open: func(context.Context) (inspect.Store, error) { return s, nil }}
}

// outline writes a tree in one line: "a(b c(d))", with the store of messages that are elsewhere.
func outline(list []inspect.Linked) string {
	var out []string
	for _, l := range list {
		text := l.ID
		if l.Store != "shop" {
			text += "@" + l.Store
		}
		if l.DeadLetter > 0 {
			text += fmt.Sprintf("!%d@%s", l.DeadLetter, l.DeadIn)
		}
		if len(l.Effects) > 0 {
			text += "(" + outline(l.Effects) + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func reasons(c inspect.Causation) (out []inspect.GapReason) {
	for _, g := range c.Incomplete {
		out = append(out, g.Reason)
	}
	return out
}

func (b bundle) find(id string, search inspect.CausationSearch, sources ...inspect.Source) inspect.Causation {
	b.t.Helper()
	c, err := inspect.FindCausation(b.t.Context(), sources, id, search)
	b.must(err)
	if c.Complete != (len(c.Incomplete) == 0) {
		b.t.Errorf("complete is %v with %v", c.Complete, c.Incomplete)
	}
	for _, g := range c.Incomplete {
		if g.Text == "" {
			b.t.Errorf("no sentence says that %s", g.Reason)
		}
	}
	return c
}

// TestCausationOverStores: a chain goes from one store to another and back. IDs that Postrider made are found in the log by their time,
// and others near the time of their effect. A store of which the message is only a dead letter says where it is dead.
func TestCausationOverStores(t *testing.T) {
	t.Parallel()
	ids := map[string]func(string) string{"own IDs": func(s string) string { return s }}
	made := map[string]string{}
	ids["made IDs"] = func(s string) string {
		if made[s] == "" {
			made[s] = postrider.NewID()
		}
		return made[s]
	}
	for name, id := range ids {
		shop, billing := setup(t), setup(t)
		shop.caused(id("a"), "")
		billing.caused(id("b"), id("a"))
		shop.caused("unrelated", "")
		shop.caused(id("c"), id("b"))
		billing.caused(id("d"), id("c"))
		shop.caused(id("e"), id("c"))
		billing.caused(id("f"), id("d"))
		billing.settle("to-nats", func(s *store.Settlement, m *postrider.Message) {
			if m.ID == id("d") {
				deadLetter(s, m)
			}
		})
		for _, thorough := range []bool{false, true} {
			c := shop.find(id("c"), inspect.CausationSearch{Thorough: thorough}, source("shop", shop), source("billing", billing))
			if got, want := outline(c.Causes), id("a")+" "+id("b")+"@billing"; got != want || !c.Complete {
				t.Errorf("%s: causes %s, want %s; %v", name, got, want, c.Incomplete)
			}
			if got, want := outline(c.Effects), id("d")+"@billing!1@billing("+id("f")+"@billing) "+id("e"); got != want {
				t.Errorf("%s: effects %s, want %s", name, got, want)
			}
			if m := c.Message; m.ID != id("c") || m.Key != "order/42" || m.CorrelationID != "process-1" || m.Type != "order.placed" || m.StoredAt.IsZero() {
				t.Errorf("%s: message %+v", name, m)
			}
		}
	}
}

// TestForgedCausation (scenario D10): messages that would have caused themselves, and 10,000 effects of one message, are cut, and the
// answer says so.
func TestForgedCausation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.caused("a", "c")
	b.caused("b", "a")
	b.caused("c", "b")
	b.caused("self", "self")
	c := b.find("a", inspect.CausationSearch{}, source("shop", b))
	if got := outline(c.Causes) + ">" + outline(c.Effects); got != "b c>b(c)" || !slices.Equal(reasons(c), []inspect.GapReason{inspect.GapCycle}) {
		t.Errorf("a cycle: %s, %v", got, reasons(c))
	}
	c = b.find("self", inspect.CausationSearch{}, source("shop", b))
	if len(c.Causes)+len(c.Effects) > 0 || !slices.Equal(reasons(c), []inspect.GapReason{inspect.GapCycle}) {
		t.Errorf("its own cause: %+v", c)
	}

	b.caused("parent", "")
	var children []*postrider.Message
	for i := range 10_000 {
		children = append(children, caused(fmt.Sprintf("child-%05d", i), "parent"))
	}
	b.insert(children...)
	c = b.find("parent", inspect.CausationSearch{Thorough: true, Limit: 7}, source("shop", b))
	if len(c.Effects) != 7 || c.More != 9_993 || c.Effects[6].ID != "child-00006" || !slices.Equal(reasons(c), []inspect.GapReason{inspect.GapLimit}) {
		t.Errorf("of 10,000 effects: %d and %d more, %v", len(c.Effects), c.More, reasons(c))
	}
	c = b.find("parent", inspect.CausationSearch{}, source("shop", b))
	if i := slices.IndexFunc(c.Incomplete, func(g inspect.Gap) bool { return g.Reason == inspect.GapMessages }); len(c.Effects) != 200 ||
		i < 0 || c.Incomplete[i].Until.IsZero() || c.Incomplete[i].Store != "shop" {
		t.Errorf("a quick search: %d effects, %+v", len(c.Effects), c.Incomplete)
	}
}

// TestLongChains: chains are followed 20 deep in each direction; effects close to the message come before those of its effects.
func TestLongChains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.caused("m-0", "")
	for i := range 60 {
		b.caused(fmt.Sprintf("m-%d", i+1), fmt.Sprintf("m-%d", i))
	}
	c := b.find("m-30", inspect.CausationSearch{}, source("shop", b))
	depth := 0
	for list := c.Effects; len(list) > 0; list = list[0].Effects {
		depth++
	}
	if len(c.Causes) != 20 || c.Causes[0].ID != "m-10" || depth != 20 || !slices.Contains(reasons(c), inspect.GapDepth) {
		t.Errorf("%d causes, effects %d deep, %v", len(c.Causes), depth, reasons(c))
	}
	b.caused("late", "m-30")
	if c = b.find("m-30", inspect.CausationSearch{Limit: 2}, source("shop", b)); outline(c.Effects) != "m-31 late" || c.Effects[0].More != 1 {
		t.Errorf("of two effects, one with many of its own: %s", outline(c.Effects))
	}
}

// TestCausationWithoutAStore: a store that cannot be opened or read is named, and the others answer; a cause that is nowhere is named too.
func TestCausationWithoutAStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.caused("a", "gone")
	b.caused("b", "a")
	refused := errors.New("connection refused")
	closed := inspect.Source{Name: "billing", Open: func(context.Context) (inspect.Store, error) { return nil, refused }}
	c := b.find("a", inspect.CausationSearch{}, source("shop", b), closed, source("stock", unreadable{b.Store, refused}))
	if outline(c.Effects) != "b" || !slices.Equal(reasons(c), []inspect.GapReason{inspect.GapUnreachable, inspect.GapUnreachable, inspect.GapCauseNotFound}) ||
		c.Incomplete[0].Store != "billing" || !errors.Is(c.Incomplete[0].Err, refused) || c.Incomplete[1].Store != "stock" || c.Incomplete[2].MessageID != "gone" {
		t.Errorf("effects %s, %+v", outline(c.Effects), c.Incomplete)
	}
	if _, err := inspect.FindCausation(t.Context(), []inspect.Source{source("shop", b), closed}, "none", inspect.CausationSearch{}); !errors.Is(err, refused) {
		t.Errorf("a message that is nowhere, without a store: %v", err)
	}
	if _, err := inspect.FindCausation(t.Context(), []inspect.Source{source("shop", b)}, "none", inspect.CausationSearch{}); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("a message that is nowhere: %v", err)
	}
}

// unreadable is a store whose log cannot be read.
type unreadable struct {
	*memory.Store
	err error
}

func (u unreadable) Fetch(context.Context, string, store.FetchRequest) ([]store.Batch, error) {
	return nil, u.err
}

// silent is a store that does not answer.
type silent struct{ *memory.Store }

func (silent) Fetch(ctx context.Context, _ string, _ store.FetchRequest) ([]store.Batch, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestCausationInTime (scenario D8): a store that does not answer is named when the time is up, and what the others found is not lost.
func TestCausationInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.caused("a", "")
		b.caused("b", "a")
		for thorough, within := range map[bool]time.Duration{false: time.Second, true: 3 * time.Second} {
			begun := time.Now()
			c := b.find("a", inspect.CausationSearch{Thorough: thorough}, source("shop", b), source("billing", silent{b.Store}))
			if took := time.Since(begun); took > within || outline(c.Effects) != "b" || c.Incomplete[0].Store != "billing" || c.Incomplete[0].Reason != inspect.GapTime {
				t.Errorf("after %s: %s, %+v", took, outline(c.Effects), c.Incomplete)
			}
		}
		_, err := inspect.FindCausation(t.Context(), []inspect.Source{source("shop", silent{b.Store})}, "a", inspect.CausationSearch{})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, inspect.ErrNotFound) {
			t.Errorf("the only store does not answer: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := inspect.FindCausation(ctx, []inspect.Source{source("shop", silent{b.Store})}, "a", inspect.CausationSearch{}); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits for the answer: %v", err)
		}
	})
}

// TestCausationOfACopy: a message that is only a dead letter has left the log, and so may its effects have.
func TestCausationOfACopy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.Enroll(t.Context(), "view"))
	tx, err := b.Begin(t.Context())
	b.must(err)
	b.must(b.Park(t.Context(), tx, "view", []store.ParkRequest{{Dead: &store.DeadRequest{Reason: "refused"}, Message: caused("received", "elsewhere")}}))
	b.must(b.Commit(t.Context(), tx))
	c := b.find("received", inspect.CausationSearch{}, source("shop", b))
	if c.Message.DeadLetter != 1 || !slices.Equal(reasons(c), []inspect.GapReason{inspect.GapRetention, inspect.GapCauseNotFound}) {
		t.Errorf("%+v", c)
	}
}
