//go:build !race

package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// pause stops a process, once, before the first statement after one that locks leases, as SIGSTOP would.
type pause struct {
	mu              sync.Mutex
	locked, was     bool
	paused, goingOn chan struct{}
}

func (p *pause) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	p.mu.Lock()
	stop := p.locked && !p.was
	p.was = p.was || stop
	p.locked = p.locked || strings.Contains(q.SQL, `leases" where relay`) && strings.Contains(q.SQL, "for update")
	p.mu.Unlock()
	if stop {
		close(p.paused)
		<-p.goingOn
	}
	return ctx
}

func (p *pause) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// another returns a store on the bundle's outbox as in another process, which p pauses.
func (b *bundle) another(t *testing.T, p *pause) *postgres.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns, config.ConnConfig.Tracer = 4, p
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return open(t, pool, b.config)
}

// TestPausedProcessStopsNoSettlement: an operator's process, or one that drives a redrive, is paused while it has locked a lease.
// The relay's settlements of that partition continue once the server has ended its session. When the process resumes, its
// operation is carried out, once.
func TestPausedProcessStopsNoSettlement(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for name, c := range map[string]struct {
		dead, parked int // expected in the end
		decide       func(ctx context.Context, s *postgres.Store) error
	}{
		"redrive letters": {1, 2, func(ctx context.Context, s *postgres.Store) error {
			_, err := deadletter.New(s).RedriveDead(ctx, store.DeadFilter{Relay: "r"}, "olga", 0)
			return err
		}},
		"discard letters": {1, 1, func(ctx context.Context, s *postgres.Store) error {
			_, err := deadletter.New(s).DiscardDead(ctx, store.DeadFilter{Relay: "r"}, "olga", "x", 0)
			return err
		}},
		"step of a redrive": {1, 2, func(ctx context.Context, s *postgres.Store) error {
			r, err := deadletter.New(s).StartRedrive(ctx, deadletter.Plan{By: "olga"})
			if err == nil {
				_, _, err = deadletter.New(s).StepRedrive(ctx, r.ID, 0)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{Partitions: 1})
			l := b.lease(t, "r")[0]
			seqs := b.holding(t, l, 2)
			b.settle(t, l, store.Settlement{Dead: []store.DeadOutcome{{Sequence: seqs[1], Key: "k", FromLog: true, Reason: "rejected"}}})
			p := &pause{paused: make(chan struct{}), goingOn: make(chan struct{})}
			other := b.another(t, p)
			decided := make(chan error, 1)
			go func() { decided <- c.decide(context.WithoutCancel(t.Context()), other) }()
			select {
			case <-p.paused:
			case err := <-decided:
				t.Fatalf("was not paused: %v", err)
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := b.Settle(ctx, "r", []store.Settlement{b.following(t, l, store.Settlement{DeliveredCount: 1})})
			if took := time.Since(began); err != nil || len(out.Lost) > 0 || took > 30*time.Second {
				t.Errorf("settled %+v, %v after %s", out, err, took)
			}
			close(p.goingOn)
			if err := <-decided; err != nil {
				t.Errorf("went on: %v", err)
			}
			dead, parked := one[int](t, b.pool, "select count(*) from "+b.table("dead")), one[int](t, b.pool, "select count(*) from "+b.table("parked"))
			if dead != c.dead || parked != c.parked {
				t.Errorf("%d letters and %d parked messages, want %d and %d", dead, parked, c.dead, c.parked)
			}
		})
	}
}
