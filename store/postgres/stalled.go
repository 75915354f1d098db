package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A settlement, a commit with one, a call of Acquire, or a step of an inbox is a pipeline of statements that ends with a Sync. If the
// connection breaks before the server has the Sync, its backend waits for the rest with its locks held until the operating system
// closes the connection, which may take hours. The backend is active all that time, so neither idle_in_transaction_session_timeout nor
// statement_timeout ends it. Two things do: transaction_timeout, from PostgreSQL 17 and only in settlements, since the transaction of
// a handler may take long; and a process that waits for what is locked until its time is over.

// boundSQL is appended to a plan and limits its transaction where the server supports it.
func (c *Config) boundSQL() string {
	if c.IdleTimeout < 0 {
		return ""
	}
	return fmt.Sprintf(`, case when current_setting('server_version_num')::int4 >= 170000
	then set_config('transaction_timeout', '%d', true) end`, c.IdleTimeout.Milliseconds())
}

// endStalledSQL ends the backends of this role that have waited for the rest of a pipeline for $4 microseconds and have locked
// leases, the right to grant them, or rows of an inbox. It does so only if one of the partitions $2 of relay $1 is not free for owner $3 although
// its owner is gone, or if $5. It does not end the backend of a working process, which receives a new statement within
// milliseconds; if it ends one by mistake, the transaction is repeated.
const endStalledSQL = `
with right_to_grant as (
	select hashtextextended('{relays}' || $1::text, 2) as key
), stalled as materialized (
	select a.pid, extract(epoch from clock_timestamp() - a.state_change)::float8 as waited from pg_stat_activity a
	where a.datname = current_database() and a.usename = session_user and a.pid <> pg_backend_pid()
		and a.state = 'active' and a.wait_event = 'ClientRead' and a.query !~* '^\s*copy' -- whose rows may come slowly
		and a.state_change < clock_timestamp() - $4::float8 * interval '1 microsecond'
		and exists (select from pg_locks k, right_to_grant g where k.pid = a.pid and k.granted and (
			k.locktype = 'relation' and k.relation in ('{leases}'::regclass::oid, '{claims}'::regclass::oid, '{parked}'::regclass::oid,
				'{held}'::regclass::oid, '{records}'::regclass::oid) and k.mode in ('RowShareLock', 'RowExclusiveLock')
			or k.locktype = 'advisory' and k.objsubid = 1 and k.classid::int8 << 32 | k.objid::int8 = g.key))
)
select s.pid::int4, s.waited from stalled s
where ($5::bool or exists (
	select from {leases} l where l.relay = $1::text and l.partition = any($2::int2[]) and l.incarnation = {incarnation}()
		and l.owner not in ('', $3::text) and not ` + ownerLivesSQL + `))
	and pg_terminate_backend(s.pid)`

// endStalled ends backends that keep leases from being granted; the next call of Acquire finds the leases free. Errors are
// ignored: a role without the right to see other backends loses only this.
func (s *Store) endStalled(ctx context.Context, a *acquisition) {
	s.endBackends(ctx, a.relay, a.numbers, a.owner.ID, a.ttl/3, a.refused)
}

// stalledFor is how long a backend may wait for the rest of a settlement before it is ended in favor of a repetition.
const stalledFor = 5 * time.Second

// longWait is how long a step of an inbox must have waited, when its context ends, for stalled backends to be looked for.
const longWait = time.Second

// endStalledStep ends backends that a step of an inbox may have waited for, e.g. of a process that has claimed the same message and
// is gone: the repetition of the step then goes on. began is when the step began, err its error.
func (s *Store) endStalledStep(ctx context.Context, name string, began time.Time, err error) {
	if err != nil && ctx.Err() != nil && time.Since(began) >= longWait {
		s.endStalledSettlement(ctx, name)
	}
}

// callLocking runs queries that may wait for rows that other transactions have locked.
func (s *Store) callLocking(ctx context.Context, c caller, name string, queries ...query) error {
	began := time.Now()
	err := c.call(ctx, queries...)
	s.endStalledStep(ctx, name, began, err)
	return err
}

// endStalledSettlement ends backends left by an unanswered settlement, which would block its repetition.
func (s *Store) endStalledSettlement(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stalledFor)
	defer cancel()
	s.endBackends(ctx, name, []int16{}, "", stalledFor, true)
}

func (s *Store) endBackends(ctx context.Context, name string, partitions []int16, owner string, waiting time.Duration, always bool) {
	rows, err := s.pool.Query(ctx, s.names.expand(endStalledSQL), name, partitions, owner, waiting.Microseconds(), always)
	if err != nil {
		return
	}
	var pid int
	var waited float64
	_, _ = pgx.ForEachRow(rows, []any{&pid, &waited}, func() error {
		s.config.Logger.Warn("a connection that was cut in the middle of a transaction has locked what others wait for; its backend is ended",
			"relay", name, "pid", pid, "waited", time.Duration(waited*float64(time.Second)).Round(time.Millisecond))
		return nil
	})
}
