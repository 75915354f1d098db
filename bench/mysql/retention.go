package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Retention measures ways to remove delivered messages while writers publish at full speed and a relay delivers:
//
//   - nothing is removed;
//   - Postrider: Store.Maintain deletes from the beginning of the log by primary key, every second;
//   - an archive: delivered messages are copied to a table partitioned by time (INSERT … SELECT) and deleted from the log
//     in the same transaction, every 100 ms, and every second the oldest partition of the archive is dropped;
//   - a partitioned log: publishers insert into a table partitioned by sequence, whose oldest partition is dropped every
//     second.
//
// Each runs once more while a transaction that has used the table in question stays open.

const (
	retentionWriters = 16
	partitionRows    = 2_000 // of the partitioned log
	partitionsMade   = 30
	secondsMade      = 60 // partitions of the archive, one for each second since its creation
)

// way is a way to remove messages.
type way struct {
	name string
	// how is the way to publish, pin the statement of the transaction that stays open; "" for none.
	how road
	pin string
	// remove is called at this interval and returns how many messages it has removed.
	every  time.Duration
	remove func(ctx context.Context) (int64, error)
}

func (b *bench) ways() []way {
	drop := func(ctx context.Context) (int64, error) {
		m, err := b.store.Maintain(ctx, store.Retention{})
		return m.Dropped, err
	}
	const second, often = time.Second, 100 * time.Millisecond
	published := `INSERT INTO postrider_log (partition_id, id, topic, type, message_time, headers, payload, created_at)
		VALUES (0, 'pin', 't', 't', 0, '{}', '{}', 0)`
	pinned := strings.Replace(published, "postrider_log", "parted", 1)
	return []way{
		{name: "nothing is removed", how: ours},
		{name: "deleted from the log", how: ours, every: second, remove: drop},
		{name: "deleted, a publisher stays open", how: ours, every: second, remove: drop, pin: published},
		{name: "archive", how: ours, every: often, remove: b.archive()},
		{name: "archive, a reader of it stays open", how: ours, every: often, remove: b.archive(), pin: "SELECT COUNT(*) FROM archive"},
		{name: "partitioned log", how: road{"parted"}, every: second, remove: b.dropParted()},
		{name: "partitioned, a publisher stays open", how: road{"parted"}, every: second, remove: b.dropParted(), pin: pinned},
	}
}

// retention measures every way in turns and prints a line for each, with the totals of all rounds.
func (b *bench) retention(ctx context.Context, rounds int, length time.Duration) error {
	var names []string
	all := make(map[string]*observed)
	for round := range rounds {
		for _, w := range b.ways() {
			o, err := b.observe(ctx, w, length)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round == 0 {
				names, all[w.name] = append(names, w.name), &observed{}
			}
			all[w.name].add(o)
		}
	}
	for _, name := range names {
		fmt.Fprintln(b.out, all[name].line(name))
	}
	return b.space(ctx)
}

// observed is what was measured during a way.
type observed struct {
	took       []time.Duration // of publishing, within its transaction
	redo, data int64           // bytes written to the redo log, and to data files
	removed    int64
	refused    int           // how often removal timed out waiting for a lock
	longest    time.Duration // longest removal step
}

func (o *observed) add(other *observed) {
	o.took = append(o.took, other.took...)
	o.redo, o.data, o.removed = o.redo+other.redo, o.data+other.data, o.removed+other.removed
	o.refused += other.refused
	o.longest = max(o.longest, other.longest)
}

func (o *observed) line(name string) string {
	n := int64(max(len(o.took), 1))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%-36s %7d published, p50 %s p99 %s p99.9 %s max %s; %d B of redo and %d B of data a message; %d removed, "+
		"the longest step %s, %d refused", name, len(o.took), round(percentile(o.took, 0.5)), round(percentile(o.took, 0.99)),
		round(percentile(o.took, 0.999)), round(slices.Max(o.took)), o.redo/n, o.data/n, o.removed, o.longest.Round(time.Millisecond), o.refused)
}

// observe empties the tables, runs writers and a relay with a way to remove messages for a time, and counts what was
// written until all dirty pages are on disk.
func (b *bench) observe(ctx context.Context, w way, length time.Duration) (o *observed, err error) {
	if err := b.emptied(ctx); err != nil {
		return nil, err
	}
	r, err := b.relay(ctx, relay.FromOldest, func([]*postrider.Message) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop(), b.remove(ctx)) }()
	if w.pin != "" {
		pinned, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer pinned.Rollback()
		if _, err := pinned.ExecContext(ctx, w.pin); err != nil {
			return nil, err
		}
	}
	o = &observed{}
	redo, data, err := b.written(ctx)
	if err != nil {
		return nil, err
	}
	removing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- b.keepRemoving(removing, w, o) }()
	if o.took, err = b.load(ctx, retentionWriters, w.how, length); err != nil {
		return nil, err
	}
	stop()
	if err := <-ended; err != nil {
		return nil, err
	}
	redoAfter, dataAfter, err := b.written(ctx)
	o.redo, o.data = redoAfter-redo, dataAfter-data
	return o, err
}

// keepRemoving calls a way's remove until ctx ends. It counts lock timeouts.
func (b *bench) keepRemoving(ctx context.Context, w way, o *observed) error {
	if w.remove == nil {
		return nil
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		began := time.Now()
		n, err := w.remove(context.WithoutCancel(ctx))
		o.longest = max(o.longest, time.Since(began))
		o.removed += n
		if err != nil && !strings.Contains(err.Error(), "1205") {
			return err
		}
		if err != nil {
			o.refused++
		}
	}
}

// emptied recreates all tables.
func (b *bench) emptied(ctx context.Context) error {
	parts := make([]string, partitionsMade)
	for i := range parts {
		parts[i] = fmt.Sprintf("PARTITION p%d VALUES LESS THAN (%d)", i, (i+1)*partitionRows)
	}
	seconds := make([]string, secondsMade)
	for i := range seconds {
		seconds[i] = fmt.Sprintf("PARTITION s%d VALUES LESS THAN (%d)", i, time.Now().Add(time.Duration(i+1)*time.Second).UnixMicro())
	}
	for _, statement := range []string{
		"DELETE FROM orders",
		"TRUNCATE TABLE postrider_log",
		"UPDATE postrider_meta SET value = 0 WHERE name = 'floor'",
		"DROP TABLE IF EXISTS archive, parted",
		"CREATE TABLE archive LIKE postrider_log",
		"ALTER TABLE archive MODIFY seq BIGINT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (seq, created_at)",
		"ALTER TABLE archive PARTITION BY RANGE (created_at) (" + strings.Join(seconds, ", ") + ")",
		"CREATE TABLE parted LIKE postrider_log",
		"ALTER TABLE parted PARTITION BY RANGE (seq) (" + strings.Join(parts, ", ") + ", PARTITION rest VALUES LESS THAN MAXVALUE)",
	} {
		if _, err := b.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// archive returns a step that copies what the relay has passed to the archive, in batches of 1,000, and once a second
// drops the partition before the last two seconds.
func (b *bench) archive() func(ctx context.Context) (int64, error) {
	dropped, began, last := 0, time.Now(), time.Now()
	return func(ctx context.Context) (n int64, err error) {
		for moved := int64(1_000); moved == 1_000; n += moved {
			if moved, err = b.move(ctx); err != nil {
				return n, err
			}
		}
		if now := time.Now(); now.Sub(last) >= time.Second && int(now.Sub(began).Seconds())-2 > dropped {
			last = now
			if err := b.alter(ctx, fmt.Sprintf("ALTER TABLE archive DROP PARTITION s%d", dropped)); err != nil {
				return n, err
			}
			dropped++
		}
		return n, nil
	}
}

// alter changes a table, and waits for its lock for the shortest possible time: one second.
func (b *bench) alter(ctx context.Context, statement string) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, statement)
	_, reset := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = DEFAULT")
	return errors.Join(err, reset)
}

// move copies up to 1,000 messages that all cursors have passed to the archive, and deletes them from the log.
func (b *bench) move(ctx context.Context) (n int64, err error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	var first, last sql.Null[int64]
	if err := tx.QueryRowContext(ctx, `SELECT MIN(seq), MAX(seq) FROM (SELECT seq FROM postrider_log
		WHERE seq <= (SELECT MIN(position) FROM postrider_cursors) ORDER BY seq LIMIT 1000) r`).Scan(&first, &last); err != nil || !first.Valid {
		return 0, err
	}
	between := fmt.Sprintf(" WHERE seq BETWEEN %d AND %d", first.V, last.V)
	res, err := tx.ExecContext(ctx, "INSERT INTO archive SELECT * FROM postrider_log"+between)
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM postrider_log"+between); err != nil {
		return 0, err
	}
	if n, err = res.RowsAffected(); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// dropParted returns a step that drops every full partition except the last.
func (b *bench) dropParted() func(ctx context.Context) (int64, error) {
	dropped := 0
	return func(ctx context.Context) (n int64, err error) {
		var last int64
		err = b.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(seq), 0) FROM parted").Scan(&last)
		full := int(last/partitionRows) - 1
		if err != nil || full <= dropped {
			return 0, err
		}
		var names []string
		for i := dropped; i < full; i++ {
			names = append(names, fmt.Sprintf("p%d", i))
		}
		if err := b.alter(ctx, "ALTER TABLE parted DROP PARTITION "+strings.Join(names, ", ")); err != nil {
			return 0, err
		}
		n, dropped = int64(full-dropped)*partitionRows, full
		return n, nil
	}
}

// written is how many bytes the server has written to its redo log and to its data files, after flushing all dirty pages.
func (b *bench) written(ctx context.Context) (redo, data int64, err error) {
	if _, err := b.db.ExecContext(ctx, "SET GLOBAL innodb_max_dirty_pages_pct = 0"); err != nil {
		return 0, 0, err
	}
	defer func() {
		_, reset := b.db.ExecContext(ctx, "SET GLOBAL innodb_max_dirty_pages_pct = 90")
		err = errors.Join(err, reset)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		dirty, err := b.status(ctx, "Innodb_buffer_pool_pages_dirty")
		if err != nil {
			return 0, 0, err
		}
		if dirty < 100 || time.Now().After(deadline) {
			break
		}
	}
	if redo, err = b.status(ctx, "Innodb_os_log_written"); err != nil {
		return 0, 0, err
	}
	data, err = b.status(ctx, "Innodb_data_written")
	return redo, data, err
}

func (b *bench) status(ctx context.Context, name string) (n int64, err error) {
	err = b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n)
	return n, err
}

// space fills the log, drains it and removes its messages, several times, and prints its file size each time.
func (b *bench) space(ctx context.Context) error {
	const cycles, messages = 5, 50_000
	if err := b.emptied(ctx); err != nil {
		return err
	}
	if _, err := b.db.ExecContext(ctx, "OPTIMIZE TABLE postrider_log"); err != nil {
		return err
	}
	var sizes []string
	for range cycles {
		if _, err := b.drain(ctx, messages, true); err != nil {
			return err
		}
		size, err := b.fileSize(ctx)
		if err != nil {
			return err
		}
		sizes = append(sizes, fmt.Sprintf("%.0f", float64(size)/1e6))
	}
	fmt.Fprintf(b.out, "file of the log after each of %d times %d messages were published, delivered and dropped: %s MB\n", cycles, messages,
		strings.Join(sizes, ", "))
	return nil
}

// fileSize is the size of the log's file. MariaDB and MySQL have it in differently named tables.
func (b *bench) fileSize(ctx context.Context) (n int64, err error) {
	for _, table := range []string{"INNODB_SYS_TABLESPACES", "INNODB_TABLESPACES"} {
		err = b.db.QueryRowContext(ctx, "SELECT FILE_SIZE FROM information_schema."+table+
			" WHERE NAME = CONCAT(DATABASE(), '/postrider_log')").Scan(&n)
		if err == nil {
			return n, nil
		}
	}
	return 0, err
}
