package outbox

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider"
)

// TestTrackRunsHooksOfAnOwnTransaction: the function that Track returns wakes relays and runs the hooks, once.
func TestTrackRunsHooksOfAnOwnTransaction(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	tx, err := b.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tracked, ended := b.Track(ctx, tx)
	if _, err := b.Publish(tracked, tx, message("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PublishSeq(tracked, tx, seqOf(message("b"))); err != nil {
		t.Fatal(err)
	}
	if h.committed != nil {
		t.Error("AfterCommit ran before the commit")
	}
	err = b.store.Commit(t.Context(), tx)
	cancel()
	ended(err)
	ended(nil)
	ended(errors.New("late"))
	requireStrings(t, "AfterCommit", h.committed, "a", "b")
	requireStrings(t, "AfterRollback", h.rolledBack)
	requireStrings(t, "calls", b.store.calls, "Begin", "Commit", "Wake")
}

func TestTrackReportsARollback(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	tx, err := b.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tracked, ended := b.Track(t.Context(), tx)
	if _, err := b.Publish(tracked, tx, message("a")); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no")
	ended(errors.Join(cause, b.store.Rollback(t.Context(), tx)))
	requireStrings(t, "AfterRollback", h.rolledBack, "a")
	requireStrings(t, "AfterCommit", h.committed)
	if !errors.Is(h.cause, cause) {
		t.Errorf("AfterRollback heard %v", h.cause)
	}
}

// TestTrackInsideInTx: a function that works in somebody else's transaction changes nothing about its end.
func TestTrackInsideInTx(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	ids, err := b.InTx(t.Context(), func(ctx context.Context, tx fakeTx) error {
		tracked, ended := b.Track(ctx, tx)
		defer ended(nil)
		_, err := b.Publish(tracked, tx, message("a"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a")
	requireStrings(t, "AfterCommit", h.committed, "a")
}

// TestTrackInsideASavepoint: the end is that of InTx.
func TestTrackInsideASavepoint(t *testing.T) {
	t.Parallel()
	var h heard
	b := setup(t, Config{Hooks: []Hooks{h.hooks()}})
	ids, err := b.InTx(t.Context(), func(ctx context.Context, tx fakeTx) error {
		inner := tx.Savepoint()
		tracked, ended := b.Track(ctx, inner)
		_, err := b.Publish(tracked, inner, message("a"))
		inner.Release()
		ended(nil)
		requireStrings(t, "AfterCommit before the commit", h.committed)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	requireStrings(t, "IDs", ids, "a")
	requireStrings(t, "AfterCommit", h.committed, "a")
}

// TestActorIsCopiedFromTheHandledMessage, unless the message has one.
func TestActorIsCopiedFromTheHandledMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	handled := message("handled")
	if err := postrider.Actor.Set(handled, "user/7"); err != nil {
		t.Fatal(err)
	}
	own := message("own")
	if err := postrider.Actor.Set(own, "billing"); err != nil {
		t.Fatal(err)
	}
	_, err := b.InTx(postrider.ContextWithMessage(t.Context(), handled), func(ctx context.Context, tx fakeTx) error {
		_, err := b.Publish(ctx, tx, message("copied"), own)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"user/7", "billing"} {
		if actor, found, err := postrider.Actor.Get(b.store.committed[i]); actor != want || !found || err != nil {
			t.Errorf("actor of message %d: %q, %t, %v; want %q", i, actor, found, err, want)
		}
	}
}
