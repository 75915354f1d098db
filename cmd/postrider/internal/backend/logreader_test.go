package backend_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/logreader"
	"github.com/postrider/postrider/internal/servertest"
)

// TestReaderOnPostgresWhileOthersPublish opens readers during traffic: messages published after a reader is open must be
// read, and none twice.
func TestReaderOnPostgresWhileOthersPublish(t *testing.T) {
	t.Parallel()
	place := temporary(t)
	const writers, each, readers = 4, 200, 3
	var began atomic.Int64
	halfway := make(chan struct{})
	published := make([][]string, writers) // IDs of messages published after all readers were open
	var opened atomic.Bool
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := 0; n < each || !opened.Load(); n++ {
				if began.Add(1) == writers*each/4 {
					close(halfway)
				}
				counts := opened.Load()
				id := fmt.Sprintf("%d-%d", w, n)
				msgs := []*postrider.Message{{ID: id, Type: "t", Key: fmt.Sprintf("key/%d", n%20)}}
				if _, err := place.Publish(context.WithoutCancel(t.Context()), "test", msgs); err != nil {
					t.Error(err)
					return
				}
				if counts {
					published[w] = append(published[w], id)
				}
			}
			for n := range 50 {
				id := fmt.Sprintf("%d-late-%d", w, n)
				if _, err := place.Publish(context.WithoutCancel(t.Context()), "test", []*postrider.Message{{ID: id, Type: "t", Key: id}}); err != nil {
					t.Error(err)
					return
				}
				published[w] = append(published[w], id)
			}
		})
	}
	<-halfway
	var all []*logreader.Reader
	for range readers {
		r, err := logreader.FromNow(t.Context(), place)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	opened.Store(true)
	writing.Wait()
	wantOnce(t, all, slices.Concat(published...))
	oldest, err := logreader.FromOldest(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rest(t, oldest)); int64(n) != began.Load()+writers*50 {
		t.Errorf("%d messages in the log, %d were published", n, began.Load()+writers*50)
	}
}

// temporary opens an outbox on PostgreSQL that is removed with the test.
func temporary(t *testing.T) *backend.Temporary {
	t.Helper()
	server := servertest.Get(t, servertest.Postgres)
	place, err := backend.OpenTemporary(t.Context(), config.Store{URL: server}, "logreader_"+strings.ToLower(rand.Text()[:10]),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.Remove(); err != nil {
			t.Error(err)
		}
	})
	return place
}

// wantOnce checks that each reader reads these messages, and none twice.
func wantOnce(t *testing.T, readers []*logreader.Reader, published []string) {
	t.Helper()
	for i, r := range readers {
		got := map[string]int{}
		for _, id := range rest(t, r) {
			if got[id]++; got[id] > 1 {
				t.Errorf("reader %d read %s twice", i, id)
			}
		}
		for _, id := range published {
			if got[id] == 0 {
				t.Errorf("reader %d missed %s", i, id)
			}
		}
	}
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
