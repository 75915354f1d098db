package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Config.DeliverAfterFlush. A transaction writes its commit record to the write-ahead log before a snapshot can see it. So the
// end of the log, read after a fetch took its snapshot, is beyond the commits of all rows that the fetch found. The fetch returns
// the rows when the log is flushed up to there. If it is not, the fetch commits a transaction that waits for the disk, which
// flushes the log.
const (
	// unflushedSQL is the end of the write-ahead log, or null if it is flushed up to there.
	unflushedSQL = `case when pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() then pg_current_wal_insert_lsn() end`

	// flushPlanSQL waits for the local disk, not for a standby.
	flushPlanSQL = planSQL + `, pg_catalog.set_config('synchronous_commit', 'local', true)`

	// flushSQL returns whether the log is flushed up to $1 when its transaction has committed: $2 relay, $3 a partition of it. If
	// it is not flushed yet, a row lock gives the transaction something to write: without that, a commit does not flush. Nobody
	// else locks this row except to remove the relay, the lock leaves no dead row, and logical decoding does not show it.
	flushSQL = `
with flushed as materialized (
	select pg_current_wal_flush_lsn() >= $1::text::pg_lsn as yes
), locked as materialized (
	select p.partition from {relay_partitions} p
	where p.relay = $2::text and p.partition = $3::int2 and not (select yes from flushed) for key share of p
)
select yes or exists (select from locked) from flushed`
)

// flush waits until the commits of the rows read are on disk. It checks the leases again: after a crash or failover in the
// meantime, the log may have grown beyond this place without the rows. Readers without leases get their rows at once.
func (f *fetch) flush(ctx context.Context) error {
	if f.unflushed == "" || f.rows == 0 || f.relay == "" {
		return nil
	}
	partition := int16(f.parts[0].lease.Partition)
	results, err := implicit(ctx, f.store.pool, flushPlanSQL, func(b *pgx.Batch) {
		f.queueHolding(b)
		b.Queue(f.store.sql.flush, f.unflushed, f.relay, partition)
	})
	if err != nil {
		return fmt.Errorf("flush the write-ahead log: %w", err)
	}
	flushed := false
	if err = f.checkHolding(results); err == nil {
		err = results.QueryRow().Scan(&flushed)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("flush the write-ahead log: %w", err)
	}
	for _, p := range f.parts {
		p.lost = p.lost || !flushed // somebody removed the relay meanwhile
	}
	return nil
}
