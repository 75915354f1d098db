package admin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// hanging is a store whose first view reads, and then does not return until release is closed.
type hanging struct {
	*memory.Store
	reads   chan struct{} // has room for one
	begun   chan struct{}
	release chan struct{}
}

func (h hanging) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	err := h.Store.View(ctx, op, do)
	select {
	case h.reads <- struct{}{}:
		close(h.begun)
		<-h.release
	default:
	}
	return err
}

// TestSessionsWhileTheDatabaseHangs: who waits for another's reading stops with its own context, and sessions that end meanwhile are
// known afterwards.
func TestSessionsWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	s := hanging{memory.New(memory.Config{}), make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
	service := admin.New(s, admin.Config{})
	began, first, others := time.Now(), make(chan error, 1), make(chan error, 2)
	go func() {
		_, err := service.SessionEnded(t.Context(), boss, began)
		first <- err
	}()
	<-s.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		_, err := service.SessionEnded(ctx, viewer, began)
		others <- err
		others <- service.EndSessions(t.Context(), viewer)
	}()
	late, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for _, want := range []error{context.Canceled, nil} {
		select {
		case err := <-others:
			if !errors.Is(err, want) {
				t.Errorf("while the database hangs: %v, want %v", err, want)
			}
		case <-late.Done():
			t.Error("a request waits for another's reading")
		}
	}
	close(s.release)
	must(t, <-first)
	if ended, err := service.SessionEnded(t.Context(), viewer, began); !ended || err != nil {
		t.Errorf("a session that ended during the reading: %t, %v", ended, err)
	}
}
