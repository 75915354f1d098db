package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/plain"
)

const (
	// openTransactionsSQL lists transactions that have written for longer than $1 seconds, and sessions that are idle in one with
	// locks on tables of the outbox for longer than $2. $3 is the pattern of tables, $4 that of the log's, $5 the schema.
	openTransactionsSQL = `
select a.pid, coalesce(a.usename, ''), a.application_name, coalesce(a.state, ''), extract(epoch from clock_timestamp() - a.xact_start)::int8,
	extract(epoch from clock_timestamp() - a.state_change)::int8, a.backend_xid is not null, l.locks, l.published
from pg_stat_activity a cross join lateral (
	select count(*) filter (where c.relname like $3) > 0 as locks,
		count(*) filter (where l.mode = 'RowExclusiveLock' and c.relname like $4) > 0 as published
	from pg_locks l join pg_class c on c.oid = l.relation
	where l.pid = a.pid and l.granted and c.relnamespace = to_regnamespace($5)) as l
where a.pid <> pg_backend_pid() and a.datname = current_database() and (
	a.backend_xid is not null and a.xact_start < clock_timestamp() - make_interval(secs => $1)
	or a.state like 'idle in transaction%' and l.locks and a.state_change < clock_timestamp() - make_interval(secs => $2))
order by a.xact_start`
	preparedSQL = `select gid, owner, extract(epoch from clock_timestamp() - prepared)::int8 from pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - make_interval(secs => $1) order by prepared`
)

// oldTransactions finds transactions of sessions, prepared ones, and sessions that are idle in one.
func (c checker) oldTransactions(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	if out, err = c.prepared(ctx, tx); err != nil {
		return nil, err
	}
	if err := c.mayLook(ctx, tx); err != nil {
		if len(out) > 0 {
			return out, nil
		}
		return nil, err
	}
	var pid, open, idle int64
	var user, application, state string
	var wrote, locks, published bool
	n := c.s.names
	args := []any{c.limits.openFor.Seconds(), c.limits.idleFor.Seconds(), c.tables(), likeLiteral(n.prefix+"log") + "%", pgx.Identifier{n.schema}.Sanitize()}
	dests := []any{&pid, &user, &application, &state, &open, &idle, &wrote, &locks, &published}
	err = c.each(ctx, tx, openTransactionsSQL, args, dests, func() {
		f := doctor.Finding{Level: doctor.Warning, Target: fmt.Sprintf("pid %d", pid), Evidence: fmt.Sprintf("pg_stat_activity: user %s, application %s, %s",
			cmp.Or(user, "?"), cmp.Or(application, "?"), cmp.Or(state, "?"))}
		switch {
		case published:
			f.Message = fmt.Sprintf("A transaction that has published is open for %s.", seconds(open))
			f.Impact = "Its messages wait for its commit, and retention stops before them. Other messages are not delayed."
			if open >= int64(c.limits.openFault.Seconds()) {
				f.Level = doctor.Fault
			}
		case wrote:
			f.Message = fmt.Sprintf("A transaction that has written is open for %s.", seconds(open))
			f.Impact = "Delivery is not delayed. Vacuum cannot remove rows that have changed since, and small tables grow."
		default:
			f.Message = fmt.Sprintf("A session is idle in a transaction for %s, with locks on tables of the outbox.", seconds(idle))
			f.Impact = "Others wait for its locks, and maintenance of the log is put off."
		}
		f.Fix = []doctor.Fix{
			{Text: "find out what it does; to end it:", Command: fmt.Sprintf("select pg_terminate_backend(%d);", pid)},
			{Text: "so that it does not happen again:", Command: fmt.Sprintf("alter role %s set idle_in_transaction_session_timeout = '1min';", pgx.Identifier{user}.Sanitize())},
		}
		out = append(out, f)
	})
	return out, err
}

func (c checker) prepared(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	var gid, owner string
	var age int64
	err = c.each(ctx, tx, preparedSQL, []any{c.limits.openFor.Seconds()}, []any{&gid, &owner, &age}, func() {
		f := doctor.Finding{
			Level: doctor.Warning, Target: "prepared transaction " + gid,
			Message: fmt.Sprintf("A transaction of %s was prepared %s ago, and has not ended.", owner, seconds(age)),
			Impact:  "Nobody ends it by itself: it holds its locks, and vacuum back. If it has published, its messages wait.",
			Fix: []doctor.Fix{
				{Text: "ask who prepared it whether to commit it; otherwise:", Command: fmt.Sprintf("rollback prepared %s;", literal(gid))},
			},
			Evidence: "pg_prepared_xacts",
		}
		if age >= int64(c.limits.openFault.Seconds()) {
			f.Level = doctor.Fault
		}
		out = append(out, f)
	})
	return out, err
}

// blockedSQL lists sessions that wait for a lock for longer than $1 seconds and use a table of the outbox ($2, in schema $3), with those
// that block them.
const blockedSQL = `
select w.pid, coalesce(w.application_name, ''), extract(epoch from clock_timestamp() - w.query_start)::int8, b.pid, coalesce(b.usename, ''),
	coalesce(b.application_name, ''), coalesce(b.state, '')
from pg_stat_activity w cross join lateral unnest(pg_blocking_pids(w.pid)) as p (pid) left join pg_stat_activity b on b.pid = p.pid
where w.datname = current_database() and w.wait_event_type = 'Lock' and w.query_start < clock_timestamp() - make_interval(secs => $1)
	and exists (select from pg_locks l join pg_class c on c.oid = l.relation
		where l.pid = w.pid and c.relname like $2 and c.relnamespace = to_regnamespace($3))
order by 3 desc limit 10`

func (c checker) blocked(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	if err := c.mayLook(ctx, tx); err != nil {
		return nil, err
	}
	var waiting, age int64
	var blocking *int64
	var waits, user, application, state string
	args := []any{c.limits.blockedFor.Seconds(), c.tables(), pgx.Identifier{c.s.names.schema}.Sanitize()}
	dests := []any{&waiting, &waits, &age, &blocking, &user, &application, &state}
	err = c.each(ctx, tx, blockedSQL, args, dests, func() {
		f := doctor.Finding{
			Level: doctor.Fault, Target: fmt.Sprintf("pid %d", waiting),
			Message: fmt.Sprintf("%s waits for a lock on a table of the outbox for %s.", cmp.Or(waits, "a session"), seconds(age)),
			Impact:  "Until the lock is released, it does nothing: publishing, delivery or maintenance stands still.",
		}
		f.Evidence = "pg_blocking_pids: a prepared transaction blocks it"
		f.Fix = []doctor.Fix{{Text: "see which:", Command: "select * from pg_prepared_xacts;"}}
		if blocking != nil && *blocking > 0 {
			f.Evidence = fmt.Sprintf("pg_blocking_pids: pid %d, user %s, application %s, %s", *blocking, cmp.Or(user, "?"), cmp.Or(application, "?"), cmp.Or(state, "?"))
			f.Fix = []doctor.Fix{{Text: "find out what it does; to end it:", Command: fmt.Sprintf("select pg_terminate_backend(%d);", *blocking)}}
		}
		out = append(out, f)
	})
	return out, err
}

const slotsSQL = `
select slot_name, active, coalesce(wal_status, ''), coalesce(pg_wal_lsn_diff(
	case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end, restart_lsn)::int8, 0),
	current_setting('max_slot_wal_keep_size') from pg_replication_slots order by 4 desc`

func (c checker) slots(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	var name, status, bound string
	var active bool
	var kept int64
	err = c.each(ctx, tx, slotsSQL, nil, []any{&name, &active, &status, &kept, &bound}, func() {
		lost := status == "unreserved" || status == "lost"
		if kept < c.limits.slotBytes && !lost {
			return
		}
		f := doctor.Finding{
			Level: doctor.Warning, Target: "slot " + name, Evidence: "pg_replication_slots: wal_status " + status + ", max_slot_wal_keep_size " + bound,
			Message: fmt.Sprintf("Replication slot %s keeps %s of the write-ahead log.", name, plain.Bytes(kept)),
			Impact:  "The disk fills up, and then the server stops.",
			Fix: []doctor.Fix{
				{Text: "start its consumer; if it is gone for good:", Command: fmt.Sprintf("select pg_drop_replication_slot(%s);", literal(name))},
				{Text: "bound what slots keep:", Command: "alter system set max_slot_wal_keep_size = '20GB'; select pg_reload_conf();"},
			},
		}
		if !active {
			f.Message = strings.TrimSuffix(f.Message, ".") + ", and nobody reads it."
		}
		if lost {
			f.Level, f.Impact = doctor.Fault, "Its consumer has lost changes, or will when more is written."
		}
		out = append(out, f)
	})
	return out, err
}

// autovacuumSQL: $1 is the schema, $2 the tables with many changes.
const autovacuumSQL = `
select c.relname, current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on',
	coalesce((select option_value::bool from pg_options_to_table(c.reloptions) where option_name = 'autovacuum_enabled'), true),
	coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), coalesce(to_char(s.last_autovacuum, 'YYYY-MM-DD HH24:MI'), 'never')
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
where c.relnamespace = to_regnamespace($1) and c.relname = any($2::text[]) order by c.relname`

func (c checker) autovacuum(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	n := c.s.names
	var tables []string
	for _, name := range []string{"cursors", "relays", "parked", "held", "decisions", "redrives", "records"} {
		tables = append(tables, n.prefix+name)
	}
	var table, last string
	var server, enabled bool
	var live, dead int64
	const impact = "Tables whose rows often change grow, and reading them becomes slow: cursors, parked messages and held keys."
	off := false
	args := []any{pgx.Identifier{n.schema}.Sanitize(), tables}
	err = c.each(ctx, tx, autovacuumSQL, args, []any{&table, &server, &enabled, &live, &dead, &last}, func() {
		name := pgx.Identifier{n.schema, table}.Sanitize()
		f := doctor.Finding{Level: doctor.Warning, Target: table, Impact: impact, Evidence: "pg_stat_user_tables: last autovacuum " + last}
		off = off || !server
		switch {
		case !server:
			return
		case !enabled:
			f.Message, f.Evidence = fmt.Sprintf("Autovacuum is off for table %s.", table), "the options of the table"
			f.Fix = []doctor.Fix{{Text: "as its owner:", Command: fmt.Sprintf("alter table %s reset (autovacuum_enabled);", name)}}
		case dead > c.limits.deadRows && dead > live:
			f.Message = fmt.Sprintf("Table %s has %s dead rows.", table, plain.Grouped(dead))
			f.Fix = []doctor.Fix{
				{Text: "see whether an old transaction holds vacuum back:", Command: "postrider doctor db.old_transaction"},
				{Text: "then, as its owner:", Command: fmt.Sprintf("vacuum %s;", name)},
			}
		default:
			return
		}
		out = append(out, f)
	})
	if off {
		out = append(out, doctor.Finding{
			Level: doctor.Warning, Target: "the server", Message: "Autovacuum is off.", Impact: impact, Evidence: "pg_settings",
			Fix: []doctor.Fix{{Text: "as a superuser:", Command: "alter system set autovacuum = on; alter system set track_counts = on; select pg_reload_conf();"}},
		})
	}
	return out, err
}

// segments checks that publishers have room. Reading the segments needs no right to the tables.
func (c checker) segments(ctx context.Context) ([]doctor.Finding, error) {
	s, err := c.s.listSegments(ctx)
	if err != nil {
		return nil, err
	}
	f := doctor.Finding{
		Target: c.s.names.prefix + "log", Evidence: "the segments of the log and its next number",
		Fix: []doctor.Fix{{Text: "start a relay, which makes segments; its log says why it could not", Command: "postrider relay"}},
	}
	switch {
	case len(s.current()) == 0:
		f.Level, f.Message = doctor.Fault, "No segment of the log takes the next message."
		f.Impact = "Publishing fails."
	case len(s.ahead()) < segmentsAhead-1:
		f.Level, f.Message = doctor.Warning, "No segment of the log is ready after the present one."
		f.Impact = "Delivered messages are not dropped, because publishers cannot move to the next segment."
	default:
		return nil, nil
	}
	return []doctor.Finding{f}, nil
}

// literal is a string in SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// likeLiteral escapes a text for LIKE.
func likeLiteral(text string) string {
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text)
}
