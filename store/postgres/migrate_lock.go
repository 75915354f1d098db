package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/plain"
)

// limitLocksSQL limits every wait for a lock until the transaction ends.
const limitLocksSQL = `set local lock_timeout = '%dms'`

func (m *migrator) limitSQL() string {
	return fmt.Sprintf(limitLocksSQL, m.patience.Lock.Milliseconds())
}

// lastLocked are the tables that publishers use, in the order in which they are locked, after all others: whoever publishes waits for
// no lock but these.
var lastLocked = []string{"migrations", "meta", "log"}

// lockedBy returns the tables that steps lock, in the order in which they are locked.
func lockedBy(steps []MigrationStep) []string {
	var tables []string
	for _, s := range steps {
		tables = append(tables, s.Locks()...)
	}
	slices.SortFunc(tables, func(a, b string) int {
		return cmp.Or(slices.Index(lastLocked, a)-slices.Index(lastLocked, b), strings.Compare(a, b))
	})
	return slices.Compact(tables)
}

// lockSQL locks existing tables; "" for none.
func (n names) lockSQL(tables []string) string {
	if len(tables) == 0 {
		return ""
	}
	quoted := make([]string, len(tables))
	for i, t := range tables {
		quoted[i] = n.table(t)
	}
	return "lock table " + strings.Join(quoted, ", ") + " in access exclusive mode"
}

// existingSQL returns those of the tables $2 of schema $1 that exist.
const existingSQL = `select c.relname from pg_class c where c.relnamespace = to_regnamespace($1) and c.relname = any ($2::text[])`

// lockTables locks those of the tables that exist, in their order. Once it has them, a migration waits for nothing.
func (m *migrator) lockTables(ctx context.Context, tx pgx.Tx, tables []string) error {
	if len(tables) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, qualify(existingSQL), pgx.Identifier{m.names.schema}.Sanitize(), m.names.prefixed(tables))
	if err != nil {
		return err
	}
	existing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	there := slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return !slices.Contains(existing, m.names.prefix+t) })
	if len(there) == 0 {
		return nil
	}
	_, err = tx.Exec(ctx, m.names.lockSQL(there))
	return err
}

func (n names) prefixed(tables []string) []string {
	out := make([]string, len(tables))
	for i, t := range tables {
		out[i] = n.prefix + t
	}
	return out
}

// busy reports whether a migration did not get a lock.
func busy(err error) bool { return code(err) == lockNotAvailable || code(err) == deadlockDetected }

// holdersSQL lists the transactions, at least $4 seconds old, that hold locks on tables $2 of schema $1, or on those like $3.
const holdersSQL = `
select coalesce(l.pid, 0), coalesce(p.gid, ''), min(c.relname::text), coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
	coalesce(host(a.client_addr), ''), coalesce(a.state, ''), extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::int8,
	coalesce(left(a.query, 100), '')
from pg_locks l join pg_class c on c.oid = l.relation left join pg_stat_activity a on a.pid = l.pid
	left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid' and x.virtualtransaction = l.virtualtransaction
	left join pg_prepared_xacts p on p.transaction = x.transactionid
where l.granted and l.database = (select oid from pg_database where datname = current_database()) and l.pid is distinct from pg_backend_pid()
	and c.relnamespace = to_regnamespace($1) and (c.relname = any ($2::text[]) or c.relname like $3)
	and coalesce(a.xact_start, p.prepared) <= clock_timestamp() - make_interval(secs => $4)
group by l.pid, p.gid, a.usename, a.application_name, a.client_addr, a.state, a.xact_start, p.prepared, a.query
order by coalesce(a.xact_start, p.prepared) limit 3`

// holders describes the transactions that kept a migration from its locks, the oldest first.
func (m *migrator) holders(ctx context.Context, pool pool, tables []string) (holders []string, err error) {
	segments := "" // like nothing
	if slices.Contains(tables, "log") {
		segments = likeLiteral(m.names.prefix+"log_") + "%"
	}
	rows, err := pool.Query(ctx, qualify(holdersSQL), pgx.Identifier{m.names.schema}.Sanitize(), m.names.prefixed(tables), segments, m.patience.Lock.Seconds())
	if err != nil {
		return nil, err
	}
	var pid, age int64
	var prepared, table, user, application, host, state, query string
	_, err = pgx.ForEachRow(rows, []any{&pid, &prepared, &table, &user, &application, &host, &state, &age, &query}, func() error {
		since := plain.Duration(time.Duration(age)*time.Second, " ")
		if prepared != "" {
			holders = append(holders, fmt.Sprintf("the prepared transaction %s, %s old, uses %s; to end it: rollback prepared %[1]s", literal(prepared), since, table))
			return nil
		}
		holders = append(holders, fmt.Sprintf("session %d (user %s, application %q, from %s) is %s in a transaction that is %s old and uses %s; its last "+
			"statement is %q; to end it: select pg_terminate_backend(%[1]d)",
			pid, cmp.Or(user, "?"), application, cmp.Or(host, "this host"), cmp.Or(strings.TrimSuffix(state, " in transaction"), "?"), since, table, query))
		return nil
	})
	return holders, err
}
