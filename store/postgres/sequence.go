package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// The sequence of the log only ever rises, which the cursors rely on: what gets a number below a cursor from a transaction that
// the cursor has seen the end of is never looked for. Somebody may set it back all the same: by hand, by TRUNCATE … RESTART IDENTITY,
// or by a copy that leaves it behind. Numbers are then assigned again, which the unique index of the log refuses where the
// older row is there, or numbers that no segment takes. Maintain finds out and repairs it.

// highestSQL is the highest number that the log or a cursor of a relay knows of: one descent of an index for each partition.
const highestSQL = `
select greatest(
	(select max(l.seq) from generate_series(0, {partitions}() - 1) as p cross join lateral (
		select seq from {log} where partition = p order by seq desc limit 1) as l),
	(select max(c.position) from {cursors} c where ` + readsSQL + `), 0)::int8`

// setBackSQL returns that number if the sequence is behind it. The sequence is read last (a scalar subquery runs when it is first
// needed): whatever is visible drew its number before.
const setBackSQL = `
with highest as materialized (` + highestSQL + ` as seq)
select seq from highest where (select last_value from {log_seq_seq}) < seq`

// rewindAllSQL is rewindSQL to the beginning of the log.
var rewindAllSQL = strings.ReplaceAll(rewindSQL, "$1::bool", "true")

// repairSequence finds a sequence that was set back, sets it beyond all that there is, and sends every relay back to the beginning of
// the log: which of its messages were written meanwhile, below a cursor, cannot be told.
func (m *maintenance) repairSequence(ctx context.Context, _ relay.Retention) error {
	s := m.store
	highest, behind, err := s.setBack(ctx)
	if err != nil || !behind {
		return err
	}
	s.config.Logger.Warn("postrider: the sequence of the outbox was set back; it is set beyond what it has assigned before, and relays deliver again "+
		"what the log has", "sequence", s.names.table("log_seq_seq"), "beyond", highest)
	target, err := s.cover(ctx, highest)
	if err != nil {
		return err
	}
	// The leases are locked first, so that no relay moves its cursor between the two. The sequence is set whatever becomes of the
	// transaction.
	_, err = m.change(ctx, "repair the sequence of the log", limits(maxLockWait, attachTimeout)+fmt.Sprintf("%s;\nselect {log_advance}(%d, %d);\n%s",
		takeBackSQL, target, s.config.margin(), rewindAllSQL))
	return err
}

// setBack returns the highest number that was ever assigned, as far as the outbox knows, if the sequence is behind it.
func (s *Store) setBack(ctx context.Context) (highest int64, behind bool, err error) {
	results, err := implicit(ctx, s.pool, planSQL, func(b *pgx.Batch) { b.Queue(s.names.expand(setBackSQL)) })
	if err != nil {
		return 0, false, err
	}
	rows, err := results.Query()
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&highest}, func() error { behind = true; return nil })
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return highest, behind, err
}

// cover makes sure that a segment takes what is a margin beyond a number, and returns which number that is. A sequence that is set to
// it rises, even if it was at the number before and publishers have drawn on.
func (s *Store) cover(ctx context.Context, highest int64) (int64, error) {
	target := highest + s.config.margin() + 1
	list, err := s.listSegments(ctx)
	if err != nil {
		return 0, err
	}
	list.next = target
	if len(list.current()) > 0 {
		return target, nil
	}
	if ahead := list.ahead(); len(ahead) > 0 {
		return ahead[0].from, nil
	}
	g := list.missing(s.names, s.config.segmentSpan)
	m := maintenance{store: s}
	if _, err := m.change(ctx, "prepare segment "+g.name, s.attachSQL(g)); err != nil {
		return 0, err
	}
	return max(target, g.from), nil
}
