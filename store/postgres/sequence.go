package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// The sequence of the log only rises, and the cursors rely on that: they never search for a row that gets a number below a cursor
// from a transaction that the cursor has seen end. Still, somebody may set the sequence back: by hand, by TRUNCATE … RESTART
// IDENTITY, or by a copy that leaves it behind. Numbers are then assigned again. The unique index of the log refuses those whose
// older row still exists, and other numbers may belong to no segment. Maintain detects and repairs this.

// highestSQL returns the highest number that the log or a relay's cursor knows: one index descent per partition.
const highestSQL = `
select greatest(
	(select max(l.seq) from generate_series(0, {partitions}() - 1) as p cross join lateral (
		select seq from {log} where partition = p order by seq desc limit 1) as l),
	(select max(c.position) from {cursors} c where ` + readsSQL + `), 0)::int8`

// setBackSQL returns that number if the sequence is lower. The sequence is read last (a scalar subquery runs when it is first
// needed): every visible row drew its number before.
const setBackSQL = `
with highest as materialized (` + highestSQL + ` as seq)
select seq from highest where (select last_value from {log_seq_seq}) < seq`

// repairSequence detects a sequence that was set back, sets it above every number in use, and sends every relay back to the
// beginning of the log: it cannot tell which messages were written meanwhile below a cursor.
func (m *maintenance) repairSequence(ctx context.Context, _ store.Retention) error {
	s := m.store
	highest, tooLow, err := s.setBack(ctx)
	if err != nil || !tooLow {
		return err
	}
	s.config.Logger.Warn("postrider: the sequence of the outbox was set back; it is set beyond what it has assigned before, and relays deliver again "+
		"what the log has", "sequence", s.names.table("log_seq_seq"), "beyond", highest)
	target, err := s.cover(ctx, highest)
	if err != nil {
		return err
	}
	// The leases are locked first, so that no relay moves its cursor in between. The sequence is set even if the transaction rolls
	// back.
	_, err = m.change(ctx, "repair the sequence of the log", limits(maxLockWait, attachTimeout)+fmt.Sprintf("%s;\nselect {log_advance}(%d, %d);\n%s",
		takeBackSQL, target, s.config.margin(), rewindAllSQL))
	return err
}

// setBack returns the highest number ever assigned, as far as the outbox knows, and whether the sequence is lower.
func (s *Store) setBack(ctx context.Context) (highest int64, tooLow bool, err error) {
	results, err := implicit(ctx, s.pool, planSQL, func(b *pgx.Batch) { b.Queue(s.names.expand(setBackSQL)) })
	if err != nil {
		return 0, false, err
	}
	rows, err := results.Query()
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&highest}, func() error { tooLow = true; return nil })
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return highest, tooLow, err
}

// cover makes sure that a segment covers a number at least a margin above highest, and returns that number. A sequence set to it
// rises, even if it was at highest before and publishers have drawn more.
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
	if _, err := m.change(ctx, "prepare segment "+g.name, attachSQL(g)); err != nil {
		return 0, err
	}
	return max(target, g.from), nil
}
