package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A logical restore (pg_dump, logical replication) brings the log and the cursors into another cluster, where their transaction
// ids mean nothing: they may belong to running or future transactions. The outbox therefore stores the identifier of the cluster
// that they belong to. A dump restored into its own cluster stays valid, and so does a physical copy; pg_upgrade creates another
// cluster with the same ids, at the cost of some redelivered messages.
//
// Until the outbox is adopted in its new cluster, no partition is leased. Publishing continues meanwhile.
const identitySQL = `select m.system_identifier, c.system_identifier from {meta} m, pg_control_system() c`

// identity returns the cluster that the outbox's transaction ids belong to, and the one it is in: twice the same if that is not
// known.
func (s *Store) identity(ctx context.Context, q querier, lock string) (from, to int64, err error) {
	var stored, present *int64
	err = q.QueryRow(ctx, s.names.expand(identitySQL)+lock).Scan(&stored, &present)
	switch {
	case code(err) == insufficientPrivilege && lock == "": // the server does not report it
		return 0, 0, nil
	case err != nil || stored == nil || present == nil:
		return 0, 0, err
	}
	return *stored, *present, nil
}

// checkRestored detects a database that was restored from another cluster, and waits until it is adopted.
func (s *Store) checkRestored(ctx context.Context) error {
	from, to, err := s.identity(ctx, s.pool, "")
	if err != nil {
		return translate("compare the cluster's identity", err)
	}
	if from == to {
		return nil
	}
	return translate("adopt the restored outbox", s.adopter.wait(ctx, s))
}

// adopter adopts a restored outbox in the background: it may take longer than any call that waits for it, such as a heartbeat.
type adopter struct {
	life context.Context // ends with the Store
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex
	now *adopting // nil if none is running
}

// adopting is one run of the adopter.
type adopting struct {
	done     chan struct{}
	err      error // once done is closed
	progress adoption
}

func newAdopter() *adopter {
	a := &adopter{}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// wait starts adopting unless that is running, and waits for its end.
func (a *adopter) wait(ctx context.Context, s *Store) error {
	a.mu.Lock()
	if a.now == nil && a.life.Err() == nil {
		run := &adopting{done: make(chan struct{})}
		a.now = run
		a.wg.Go(func() {
			run.err = s.adopt(a.life, func(p adoption) { a.report(run, p) })
			a.mu.Lock()
			a.now = nil // after an error, the next caller starts it again
			a.mu.Unlock()
			close(run.done)
		})
	}
	run := a.now
	a.mu.Unlock()
	if run == nil {
		return a.life.Err()
	}
	select {
	case <-run.done:
		return run.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Errorf("the outbox was restored from another cluster, and is being adopted (%s); until then no partition is leased: %w",
		run.progress, ctx.Err())
}

func (a *adopter) report(run *adopting, p adoption) {
	a.mu.Lock()
	defer a.mu.Unlock()
	run.progress = p
}

// close stops adopting after the current step; another process, or the next start, continues.
func (a *adopter) close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.wg.Wait()
}

// adopt makes the cursors valid in this cluster: it prefers redelivery to loss. It reports its progress after each step.
func (s *Store) adopt(ctx context.Context, report func(adoption)) error {
	begun, logged, steps := time.Now(), time.Now(), 0
	if err := s.beginAdoption(ctx); err != nil {
		return err
	}
	for {
		p, done, err := s.adoptOnce(ctx)
		if err != nil || done {
			if err == nil {
				s.config.Logger.Info("postrider: the restored outbox is adopted; relays continue", "after", time.Since(begun), "steps", steps)
			}
			return err
		}
		report(p)
		if steps++; time.Since(logged) >= s.config.adoption.logEvery {
			logged = time.Now()
			s.config.Logger.Info("postrider: the restored outbox is being adopted", "phase", string(p.Phase), "messages", p.Rows,
				"at", p.At, "of", p.End)
		}
	}
}

// beginAdoption records that adoption has begun, and raises a sequence that is too low. It records that first: relays must go back
// to the beginning of the log then, even if this process ends before.
func (s *Store) beginAdoption(ctx context.Context) error {
	highest, low, err := s.setBack(ctx)
	if err != nil {
		return err
	}
	var found adoption
	var begins, continues bool // neither if another process has adopted the outbox meanwhile
	err = s.inAdoption(ctx, func(tx pgx.Tx, from, to int64) error {
		found, err = s.readAdoption(ctx, tx)
		continues = found.From == from && found.To == to && (found.All || !low)
		if begins = !continues; err != nil || continues {
			return err
		}
		p := adoption{From: from, To: to, Phase: checking, All: low}
		if err := tx.QueryRow(ctx, s.names.expand(highestSQL)).Scan(&p.End); err != nil {
			return err
		}
		if err := s.startPositions(ctx, tx, &p); err != nil {
			return err
		}
		return s.saveAdoption(ctx, tx, p)
	})
	switch {
	case err != nil:
		return err
	case continues:
		s.config.Logger.Info("postrider: the restored outbox was being adopted, and that continues", "progress", found.String())
	case begins:
		s.config.Logger.Warn("postrider: the outbox was restored from another cluster; relays go back to before the oldest message " +
			"that may not have been delivered, so some are delivered again")
	}
	if !low {
		return nil
	}
	target, err := s.cover(ctx, highest) // the segment exists, committed, before the sequence is set
	if err == nil {
		_, err = s.advance(ctx, s.pool, target)
	}
	return err
}
