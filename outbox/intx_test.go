package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider"
)

// heard records the calls of a test's hooks.
type heard struct {
	committed, rolledBack []string
	cause                 error
}

func (h *heard) hooks() Hooks {
	return Hooks{
		AfterCommit: func(_ context.Context, msgs []*postrider.Message) error {
			h.committed = append(h.committed, idsOf(msgs)...)
			return nil
		},
		AfterRollback: func(_ context.Context, msgs []*postrider.Message, cause error) error {
			h.rolledBack, h.cause = append(h.rolledBack, idsOf(msgs)...), cause
			return nil
		},
	}
}

func TestInTxCommits(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
		if _, err := b.Publish(ctx, into, message("a"), message("b")); err != nil {
			return err
		}
		_, err := b.PublishSeq(ctx, into, seqOf(message("c")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a", "b", "c")
	requireStrings(t, "committed", idsOf(b.store.committed), "a", "b", "c")
	requireStrings(t, "calls", b.store.calls, "Begin", "Commit", "Wake")
}

func TestInTxRunsAfterCommitHooksAfterTheCommit(t *testing.T) {
	t.Parallel()
	var h heard
	ctx, cancel := context.WithCancel(t.Context())
	var b *bundle
	hook := func(hook context.Context, msgs []*postrider.Message) error {
		cancel()
		if hook.Err() != nil {
			t.Error("the context of the hook ended with the caller's")
		}
		if len(b.store.committed) == 0 {
			t.Error("the hook ran before the commit")
		}
		if string(msgs[0].Payload) != "1" || msgs[1].Payload != nil {
			t.Error("want payloads from Publish, and none from PublishSeq")
		}
		h.committed = idsOf(msgs)
		return nil
	}
	b = setup(t, Config{Hooks: []Hooks{{AfterCommit: hook, AfterRollback: h.hooks().AfterRollback}}})
	_, err := b.InTx(ctx, func(ctx context.Context, into fakeTx) error {
		m := message("a")
		m.Payload = []byte("1")
		if _, err := b.Publish(ctx, into, m); err != nil {
			return err
		}
		m = message("b")
		m.Payload = []byte("1")
		_, err := b.PublishSeq(ctx, into, seqOf(m))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "AfterCommit", h.committed, "a", "b")
	requireStrings(t, "calls", b.store.calls, "Begin", "Written", "Commit", "Wake")
	if string(b.store.committed[1].Payload) != "1" {
		t.Error("the payload that hooks do not get was not written either")
	}
	if h.rolledBack != nil {
		t.Error("AfterRollback ran too")
	}
}

func TestInTxWithoutMessagesRunsNoHooks(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Hooks: []Hooks{{
		AfterCommit:   func(context.Context, []*postrider.Message) error { t.Error("called"); return nil },
		AfterRollback: func(context.Context, []*postrider.Message, error) error { t.Error("called"); return nil },
	}}})
	ids, err := b.InTx(t.Context(), func(context.Context, fakeTx) error { return nil })
	if err != nil || len(ids) != 0 {
		t.Errorf("got %q, %v", ids, err)
	}
	requireStrings(t, "calls", b.store.calls, "Begin", "Commit", "Wake")
	if _, err := b.InTx(t.Context(), func(context.Context, fakeTx) error { return errors.New("no") }); err == nil {
		t.Error("want an error")
	}
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fail  string // method of the store, or "do"
		want  string
		calls []string
	}{
		"error of do":      {"do", "broken", []string{"Begin", "Rollback"}},
		"error of Written": {"Written", "look for messages undone by savepoints: broken", []string{"Begin", "Written", "Rollback"}},
		"error of Commit":  {"Commit", "commit transaction: broken", []string{"Begin", "Written", "Commit", "Rollback"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heard
			b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
			b.store.fail[c.fail] = broken
			ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
				if _, err := b.Publish(ctx, into, message("a")); err != nil {
					t.Fatal(err)
				}
				return b.store.fail["do"]
			})
			if ids != nil || !errors.Is(err, broken) || err.Error() != c.want {
				t.Errorf("got %q, %v", ids, err)
			}
			requireStrings(t, "calls", b.store.calls, c.calls...)
			requireStrings(t, "AfterRollback", h.rolledBack, "a")
			if !errors.Is(h.cause, broken) {
				t.Errorf("AfterRollback heard %v", h.cause)
			}
			if h.committed != nil || b.store.wakes != 0 {
				t.Error("something happened as after a commit")
			}
		})
	}
}

func TestInTxReportsBeginAndRollbackErrors(t *testing.T) {
	t.Parallel()
	broken, cause := errors.New("broken"), errors.New("cause")
	b := setup(t, Config{})
	b.store.fail["Rollback"] = broken
	_, err := b.InTx(t.Context(), func(context.Context, fakeTx) error { return cause })
	if !errors.Is(err, cause) || !errors.Is(err, broken) || err.Error() != "cause\nroll back transaction: broken" {
		t.Errorf("got %v", err)
	}
	b.store.fail["Begin"] = broken
	_, err = b.InTx(t.Context(), func(context.Context, fakeTx) error { t.Error("called"); return nil })
	if !errors.Is(err, broken) || err.Error() != "begin transaction: broken" {
		t.Errorf("got %v", err)
	}
}

func TestInTxRollsBackWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	b.store.during["Rollback"] = func(ctx context.Context) {
		if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
			t.Error("the rollback needs a context that lives on, but not for ever")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.InTx(ctx, func(ctx context.Context, into fakeTx) error {
		_, err := b.Publish(ctx, into, message("a"))
		cancel()
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	requireStrings(t, "calls", b.store.calls, "Begin", "Rollback")
	requireStrings(t, "AfterRollback", h.rolledBack, "a")
}

func TestInTxRollsBackAndPanicsOn(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{{AfterRollback: func(context.Context, []*postrider.Message, error) error { panic("hook") }}, h.hooks()}})
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				t.Errorf("recovered %v, want the function's own panic", r)
			}
		}()
		_, _ = b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
			if _, err := b.Publish(ctx, into, message("a")); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	requireStrings(t, "calls", b.store.calls, "Begin", "Rollback")
	requireStrings(t, "AfterRollback", h.rolledBack, "a")
	if !errors.Is(h.cause, errUnwound) {
		t.Errorf("AfterRollback heard %v", h.cause)
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = b.InTx(t.Context(), func(context.Context, fakeTx) error { runtime.Goexit(); return nil })
	})
	wg.Wait()
	requireStrings(t, "calls", b.store.calls, "Begin", "Rollback", "Begin", "Rollback")
}

func TestInTxKnowsWhatSavepointsUndid(t *testing.T) {
	t.Parallel()
	var h heard
	for name, c := range map[string]Config{"hook": {Hooks: []Hooks{h.hooks()}}, "no hook": {}} {
		b := setup(t, c)
		ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
			undone, kept := into.Savepoint(), into.Savepoint()
			_, err1 := b.Publish(ctx, undone, message("undone"))
			undone.RollbackTo()
			_, err2 := b.Publish(ctx, kept, message("kept"))
			kept.Release()
			_, err3 := b.Publish(ctx, into, message("outer"))
			return errors.Join(err1, err2, err3)
		})
		if err != nil {
			t.Fatal(err)
		}
		requireStrings(t, name+": IDs", ids, "kept", "outer")
	}
	requireStrings(t, "AfterCommit", h.committed, "kept", "outer")
}

func TestAfterHooksGoNoFurther(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{
		{AfterCommit: func(context.Context, []*postrider.Message) error { return errors.New("broken") }},
		{AfterCommit: func(context.Context, []*postrider.Message) error { panic("boom") }},
		h.hooks(),
	}})
	ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
		_, err := b.Publish(ctx, into, message("a"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a")
	requireStrings(t, "the hook after them", h.committed, "a")
	lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "error=broken") || !strings.Contains(lines[1], `error="panic: boom"`) ||
		!strings.Contains(lines[1], "intx_test.go") || !strings.Contains(lines[1], "first_message=a") {
		t.Errorf("log:\n%s", b.log)
	}
}

func TestHooksMayPublish(t *testing.T) {
	t.Parallel()
	var b *bundle
	var committed [][]string
	hook := func(ctx context.Context, msgs []*postrider.Message) error {
		committed = append(committed, idsOf(msgs))
		if len(committed) > 1 {
			return nil
		}
		_, err := b.InTx(ctx, func(ctx context.Context, into fakeTx) error {
			_, err := b.Publish(ctx, into, message("from the hook"))
			return err
		})
		return err
	}
	b = setup(t, Config{Hooks: []Hooks{{AfterCommit: hook}}})
	ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
		_, err := b.Publish(ctx, into, message("a"), message("b"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a", "b")
	if got := fmt.Sprint(committed); got != "[[a b] [from the hook]]" {
		t.Errorf("AfterCommit: %s", got)
	}
}

func TestInTxTakesPublishesOfManyGoroutines(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	given := make(chan context.Context, 1)
	ids, err := b.InTx(t.Context(), func(ctx context.Context, into fakeTx) error {
		given <- ctx
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 50 {
					if _, err := b.Publish(ctx, into, message(fmt.Sprintf("%d-%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 400 || len(h.committed) != 400 {
		t.Errorf("%d IDs, %d messages in the hook, want 400", len(ids), len(h.committed))
	}
	// With the context of a transaction that has ended, Publish works as without one.
	if _, err := b.Publish(<-given, &tx{}, message("later")); err != nil {
		t.Error(err)
	}
	if len(h.committed) != 400 {
		t.Error("the hook heard of a message of another transaction")
	}
}

func TestInTxDistinguishesOutboxesAndNestedCalls(t *testing.T) {
	t.Parallel()
	a, b := setup(t, Config{}), setup(t, Config{})
	var inner []string
	idsA, err := a.InTx(t.Context(), func(ctx context.Context, intoA fakeTx) error {
		_, err := b.InTx(ctx, func(ctx context.Context, intoB fakeTx) error {
			_, err1 := a.Publish(ctx, intoA, message("in a"))
			_, err2 := b.Publish(ctx, intoB, message("in b"))
			return errors.Join(err1, err2)
		})
		if err != nil {
			return err
		}
		inner, err = a.InTx(ctx, func(ctx context.Context, into fakeTx) error {
			_, err := a.Publish(ctx, into, message("inner"))
			return err
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "outer", idsA, "in a")
	requireStrings(t, "inner", inner, "inner")
}

func TestWake(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.Wake()
	if b.store.wakes != 1 {
		t.Errorf("woken %d times", b.store.wakes)
	}
}
