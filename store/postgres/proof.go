package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A segment is attached only if the default one has no row of its time. To make sure the server reads the default segment
// through while nobody can use it, unless a constraint on it says so already. For a large default segment Maintain adds such
// a constraint first, for a time that has not come, and validates it while others write. The constraint would refuse
// messages of that time, so it goes when the segment is attached, or cannot be; and if the process ends in between, the next
// Maintain of any other removes it, long before that time comes. Nothing else does: without a relay until then, publishing
// fails, and says what helps.
const (
	// atOnceBytes is the largest default segment, with its indexes, that is read through while others wait.
	atOnceBytes = 16 << 20
	// proofAhead is how far ahead the constraint begins, and with it the next segment.
	proofAhead = time.Hour
	// proofFor is how long a process takes at most; a constraint that is older was left behind.
	proofFor        = 5 * time.Minute
	validateTimeout = "2min"
	proofPrefix     = "proof_"
)

// proofsSQL lists the constraints, whose names are proof_, when it was made, _ and when it begins, in seconds since 1970.
const proofsSQL = `
select conname, split_part(conname, '_', 2)::int8, split_part(conname, '_', 3)::int8, convalidated
from pg_constraint where conrelid = $1::text::regclass and conname ~ '^proof_[0-9]+_[0-9]+$'`

// proof is a constraint on the default segment that leaves out the time of coming segments.
type proof struct {
	name       string
	made, from int64 // seconds since 1970
	valid      bool
}

func (n names) proofs(ctx context.Context, q querier) ([]proof, error) {
	rows, err := q.Query(ctx, proofsSQL, n.table("log_default"))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p proof, err error) {
		return p, row.Scan(&p.name, &p.made, &p.from, &p.valid)
	})
}

// endProofs removes what others have left behind, and says whether one of them is at it now.
func (m *maintenance) endProofs(ctx context.Context, now time.Time) (busy bool, err error) {
	proofs, err := m.store.names.proofs(ctx, m.store.pool)
	for _, p := range proofs {
		if now.Unix()-p.made < int64(proofFor/time.Second) {
			busy = true
			continue
		}
		if err := m.endProof(ctx, p, now); err != nil {
			return busy, err
		}
	}
	return busy, err
}

// endProof removes a constraint. It waits for longer when the time comes near that the constraint is about.
func (m *maintenance) endProof(ctx context.Context, p proof, now time.Time) error {
	wait := lockTimeout
	if p.from-now.Unix() < int64(proofFor/time.Second) {
		wait = "2s"
	}
	return m.try(ctx, "remove constraint "+p.name+" of the default segment", func(tx pgx.Tx) error {
		if err := settings(ctx, tx, wait, attachTimeout); err != nil {
			return err
		}
		proofs, err := m.store.names.proofs(ctx, tx)
		for _, found := range proofs {
			if found.name == p.name {
				return script(ctx, tx, m.store.names.expand("alter table {log_default} drop constraint "+p.name))
			}
		}
		return err
	})
}

// prove creates the segments from proofAhead on without a reading of the default segment that others wait for.
func (m *maintenance) prove(ctx context.Context, segments []segment) error {
	n, length, now := m.store.names, m.store.config.SegmentFor, segments[0].now
	notBefore := now.Add(proofAhead)
	planned := plan(segments, length, notBefore)
	if len(planned) == 0 {
		return nil
	}
	const layout = "2006-01-02 15:04:05Z"
	// One segment more than planned, for the plan that is made when they are attached.
	from, to := planned[0].from, planned[len(planned)-1].to.Add(length)
	p := proof{name: fmt.Sprintf(proofPrefix+"%d_%d", now.Unix(), from.Unix()), from: from.Unix()}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := m.endProof(ctx, p, now); err != nil {
			m.deferred = append(m.deferred, fmt.Sprintf("remove constraint %s of the default segment: %v", p.name, err))
		}
	}()
	steps := []struct{ what, timeout, sql string }{
		{"constrain the default segment", lookTimeout, fmt.Sprintf(`alter table {log_default} add constraint %s
			check (created_at < '%s' or created_at >= '%s') not valid`, p.name, from.Format(layout), to.Format(layout))},
		{"validate a constraint of the default segment", validateTimeout, "alter table {log_default} validate constraint " + p.name},
	}
	for _, st := range steps {
		err := m.try(ctx, st.what, func(tx pgx.Tx) error {
			if err := settings(ctx, tx, lockTimeout, st.timeout); err != nil {
				return err
			}
			return script(ctx, tx, n.expand(st.sql))
		})
		switch code(err) {
		case checkViolation:
			m.deferred = append(m.deferred, "create the next segment: the default one has messages of the coming hours, as from a clock that was ahead")
			return nil
		case undefinedObject: // the step before was put off
			return nil
		}
		if err != nil {
			return err
		}
	}
	return m.try(ctx, "create the next segment", func(tx pgx.Tx) error {
		proofs, err := n.proofs(ctx, tx)
		if err != nil {
			return err
		}
		for _, found := range proofs {
			if found.name == p.name && found.valid {
				return n.createSegments(ctx, tx, length, notBefore, lockTimeout)
			}
		}
		return nil // a step before was put off
	})
}
