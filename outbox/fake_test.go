package outbox

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// fakeTx is a transaction, or a savepoint in one, of a store that only records calls. Like pgx.Tx it is an interface.
type fakeTx interface {
	Savepoint() fakeTx
	RollbackTo()
	Release()
}

type tx struct {
	parent *tx
	msgs   []*postrider.Message
	ended  bool
}

func (t *tx) Savepoint() fakeTx { return &tx{parent: t} }
func (t *tx) RollbackTo()       { t.msgs, t.ended = nil, true }
func (t *tx) Release()          { t.parent.msgs, t.ended = append(t.parent.msgs, t.msgs...), true }

// fakeStore records calls in its fields, and fails where it is told to.
type fakeStore struct {
	mu        sync.Mutex
	calls     []string // all except Insert and Wake
	inserts   []int    // messages of each Insert
	committed []*postrider.Message
	wakes     int

	fail map[string]error // by method name
	// during is called in the named method with its context.
	during map[string]func(context.Context)
}

var _ store.Outbox[fakeTx] = (*fakeStore)(nil)

func (s *fakeStore) call(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "Insert" {
		s.calls = append(s.calls, name)
	}
	if f := s.during[name]; f != nil {
		f(ctx)
	}
	return s.fail[name]
}

func (s *fakeStore) Begin(ctx context.Context) (fakeTx, error) {
	if err := s.call(ctx, "Begin"); err != nil {
		return nil, err
	}
	return &tx{}, nil
}

func (s *fakeStore) Commit(ctx context.Context, t fakeTx) error {
	if err := errors.Join(s.call(ctx, "Commit"), ctx.Err()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.(*tx).ended = true
	s.committed = append(s.committed, t.(*tx).msgs...)
	return nil
}

func (s *fakeStore) Rollback(ctx context.Context, t fakeTx) error {
	t.(*tx).ended = true
	return errors.Join(s.call(ctx, "Rollback"), ctx.Err())
}

func (s *fakeStore) Insert(ctx context.Context, t fakeTx, msgs []*postrider.Message) error {
	if err := s.call(ctx, "Insert"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := t.(*tx)
	if to.ended {
		return store.ErrNoTransaction
	}
	s.inserts = append(s.inserts, len(msgs))
	for _, m := range msgs {
		c := *m
		to.msgs = append(to.msgs, &c)
	}
	return nil
}

func (s *fakeStore) Written(ctx context.Context, t fakeTx, ids []string) ([]string, error) {
	if err := s.call(ctx, "Written"); err != nil {
		return nil, err
	}
	var written []string
	for _, m := range t.(*tx).msgs {
		if slices.Contains(ids, m.ID) {
			written = append(written, m.ID)
		}
	}
	return written, nil
}

func (s *fakeStore) Published(ctx context.Context, t fakeTx) ([]*postrider.Message, error) {
	if err := s.call(ctx, "Published"); err != nil {
		return nil, err
	}
	return t.(*tx).msgs, nil
}

func (s *fakeStore) Wake(...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes++
	s.calls = append(s.calls, "Wake")
}

// bundle holds the fixtures of a test.
type bundle struct {
	*Outbox[fakeTx]
	store *fakeStore
	log   *bytes.Buffer
}

func setup(t *testing.T, c Config) *bundle {
	t.Helper()
	b := &bundle{
		store: &fakeStore{fail: map[string]error{}, during: map[string]func(context.Context){}},
		log:   &bytes.Buffer{},
	}
	c.Source = "orders"
	c.Logger = slog.New(slog.NewTextHandler(b.log, nil))
	o, err := New(b.store, c)
	if err != nil {
		t.Fatal(err)
	}
	b.Outbox = o
	return b
}

func message(id string) *postrider.Message {
	return &postrider.Message{ID: id, Type: "order.placed"}
}

func idsOf(msgs []*postrider.Message) []string {
	var ids []string
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

func requireStrings(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}
