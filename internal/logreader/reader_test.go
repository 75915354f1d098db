package logreader_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

type bundle struct {
	store *memory.Store
	box   *outbox.Outbox[*memory.Tx]
}

func setup(t *testing.T) *bundle {
	t.Helper()
	store := memory.New(memory.Config{Partitions: 4})
	box, err := outbox.New(store, outbox.Config{Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{store, box}
}

// publish publishes messages with the IDs from..to, each in its own transaction.
func (b *bundle) publish(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := b.box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := b.box.Publish(ctx, tx, message(n))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func message(n int) *postrider.Message {
	return &postrider.Message{ID: fmt.Sprint(n), Type: "t", Key: fmt.Sprintf("key/%d", n%7)}
}

// rest reads everything up to now.
func rest(t *testing.T, r *logreader.Reader) []string {
	t.Helper()
	var ids []string
	for {
		records, more, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			ids = append(ids, rec.Message.ID)
		}
		if !more {
			return ids
		}
	}
}

func want(t *testing.T, got []string, from, to int) {
	t.Helper()
	var ids []string
	for n := from; n <= to; n++ {
		ids = append(ids, fmt.Sprint(n))
	}
	slices.Sort(ids)
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		t.Errorf("read %v, want %d to %d", got, from, to)
	}
}

func TestReaderStartsWhereItIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	empty, err := logreader.FromNow(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	b.publish(t, 1, 1200)
	want(t, rest(t, empty), 1, 1200)

	oldest, err := logreader.FromOldest(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	want(t, rest(t, oldest), 1, 1200)
	for _, sequence := range []int64{0, 1, 2, 700, 1200, 1201, 5000} {
		r, err := logreader.FromSequence(ctx, b.store, sequence)
		if err != nil {
			t.Fatal(err)
		}
		want(t, rest(t, r), max(int(sequence), 1), 1200)
	}
	now, err := logreader.FromNow(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	want(t, rest(t, now), 1, 0)
	b.publish(t, 1201, 1230)
	want(t, rest(t, now), 1201, 1230)
	want(t, rest(t, now), 1, 0)
}

func TestReaderFromATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		began := time.Now()
		for n := range 20 { // one per minute: 1 at minute 0
			b.publish(t, n+1, n+1)
			time.Sleep(time.Minute)
		}
		for minute, first := range map[int]int{-5: 1, 0: 1, 7: 8, 19: 20, 60: 21} {
			r, err := logreader.FromTime(t.Context(), b.store, began.Add(time.Duration(minute)*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			want(t, rest(t, r), first, 20)
		}
	})
}

func TestReaderSeesWhatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.publish(t, 1, 10)
	tx, err := b.store.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.box.Publish(ctx, tx, message(11), message(12)); err != nil {
		t.Fatal(err)
	}
	b.publish(t, 13, 100)
	now, err := logreader.FromNow(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	want(t, rest(t, now), 1, 0)
	if err := b.store.Commit(ctx, tx); err != nil {
		t.Fatal(err)
	}
	want(t, rest(t, now), 11, 12)
}
