package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/plain"
)

// limits are those from which checks report something. Tests lower them.
type checkLimits struct {
	// openFor is how long a transaction that has written is normal, openFault how long one that has published.
	openFor, openFault time.Duration
	// idleFor is how long a session may wait in a transaction with locks on tables of the outbox, blockedFor for one.
	idleFor, blockedFor time.Duration
	// slotBytes is how much write-ahead log an inactive slot may keep.
	slotBytes int64
	// usedWarning and usedFault are the shares of the connections that are taken.
	usedWarning, usedFault float64
	// deadRows is how many dead rows a small table may have.
	deadRows int64
}

var defaultLimits = checkLimits{
	openFor: 10 * time.Minute, openFault: time.Hour, idleFor: time.Minute, blockedFor: 5 * time.Second, slotBytes: 5 << 30,
	usedWarning: 0.8, usedFault: 0.95, deadRows: 100_000,
}

// checkTimeout limits a statement of a check.
const checkTimeout = 2 * time.Second

var _ doctor.Checker = (*Store)(nil)

// Checks implements doctor.Checker: those of the schema, and of the server.
func (s *Store) Checks() []doctor.Check { return s.checks(defaultLimits) }

func (s *Store) checks(l checkLimits) []doctor.Check {
	c := checker{s, l}
	return []doctor.Check{
		{Name: "schema.version", Title: "This program and the schema match", Run: c.version},
		c.check("schema.objects", "No table, index or function of the outbox is missing", c.objects),
		c.check("schema.rights", "Database roles have all rights for their work", c.rights),
		doctor.Clock(c.clock),
		c.check("db.durability", "The server keeps what it has committed", c.durability),
		c.check("db.connections", "The server has free connections", c.connections),
		{Name: "db.pooler", Title: "Notifications do not pass through a pooler", Run: c.pooler},
		c.check("db.standby", "The server accepts changes", c.standby),
		c.check("db.old_transaction", "No transaction is open for long", c.oldTransactions),
		c.check("db.blocked", "Nobody waits long for a lock on tables of the outbox", c.blocked),
		c.check("db.slot", "No replication slot keeps much of the write-ahead log", c.slots),
		c.check("db.autovacuum", "Small tables are vacuumed", c.autovacuum),
		doctor.Maintenance(s, c.segments),
	}
}

// checker has the checks of a store.
type checker struct {
	s      *Store
	limits checkLimits
}

// check is a check that reads in a transaction of its own.
func (c checker) check(name, title string, look func(context.Context, pgx.Tx) ([]doctor.Finding, error)) doctor.Check {
	return doctor.Check{Name: name, Title: title, Run: func(ctx context.Context) (out []doctor.Finding, err error) {
		err = c.read(ctx, func(tx pgx.Tx) error {
			out, err = look(ctx, tx)
			return err
		})
		return out, err
	}}
}

// read calls f in a transaction that changes nothing, finds only functions and operators of PostgreSQL, and says what it is.
func (c checker) read(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
			pg_catalog.set_config('statement_timeout', $1::text, true), pg_catalog.set_config('application_name', 'postrider doctor', true)`,
			fmt.Sprint(checkTimeout.Milliseconds()))
		if err == nil {
			err = f(tx)
		}
		return err
	})
}

// each runs a statement and calls f for each row. {names} are tables of the outbox.
func (c checker) each(ctx context.Context, tx pgx.Tx, sql string, args, dests []any, f func()) error {
	rows, err := tx.Query(ctx, c.s.names.replacer.Replace(sql), args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dests, func() error {
		f()
		return nil
	})
	return err
}

// tables is a pattern of the names of the outbox's tables, for LIKE.
func (c checker) tables() string { return likeLiteral(c.s.names.prefix) + "%" }

func (c checker) clock(ctx context.Context) (now time.Time, err error) {
	err = c.s.pool.QueryRow(ctx, "select pg_catalog.clock_timestamp()").Scan(&now)
	return now, err
}

// version does not need a schema that this program can use.
func (c checker) version(ctx context.Context) ([]doctor.Finding, error) {
	m := migrator{set: c.s.migrations, names: c.s.names}
	applied, err := m.applied(ctx, c.s.pool)
	if err != nil {
		return nil, err
	}
	return doctor.SchemaVersion(c.s.names.migrations, m.set.Status(applied)), nil
}

// mayLook returns a *doctor.MissingError unless the role sees what other sessions do.
func (c checker) mayLook(ctx context.Context, tx pgx.Tx) error {
	var may bool
	var role string
	err := tx.QueryRow(ctx, `select pg_has_role(current_user, 'pg_read_all_stats', 'usage'), quote_ident(current_user)`).Scan(&may, &role)
	if err != nil || may {
		return err
	}
	return &doctor.MissingError{
		Reason: fmt.Sprintf("role %s does not see what other sessions do", role),
		Fix:    doctor.Fix{Text: "as a superuser:", Command: fmt.Sprintf("grant pg_read_all_stats to %s;", role)},
	}
}

func seconds(n int64) string { return plain.Duration(time.Duration(n)*time.Second, " ") }

const (
	settingsSQL = `select name, setting, source from pg_settings where name = any($1::text[])`
	// asyncSQL lists the roles whose commits do not wait for the disk: they may log in, and a setting of the role, in this database
	// or in all, says so.
	asyncSQL = `
select distinct quote_ident(r.rolname) from pg_db_role_setting s join pg_roles r on r.oid = s.setrole, unnest(s.setconfig) as c
where r.rolcanlogin and c = 'synchronous_commit=off'
	and s.setdatabase in (0, (select oid from pg_database where datname = current_database())) order by 1`
)

// durability checks the server, and the sessions of this role and of others.
func (c checker) durability(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	settings, sources := map[string]string{}, map[string]string{}
	var name, value, source string
	names := []string{"fsync", "full_page_writes", "synchronous_commit"}
	err = c.each(ctx, tx, settingsSQL, []any{names}, []any{&name, &value, &source}, func() { settings[name], sources[name] = value, source })
	if err != nil {
		return nil, err
	}
	for _, name := range names[:2] {
		if settings[name] != "off" {
			continue
		}
		out = append(out, doctor.Finding{
			Level: doctor.Fault, Target: "the server", Message: fmt.Sprintf("%s is off.", name),
			Impact:   "A crash of the server's machine can lose what was committed, or damage the database.",
			Fix:      []doctor.Fix{{Text: "as a superuser:", Command: fmt.Sprintf("alter system set %s = on; select pg_reload_conf();", name)}},
			Evidence: "pg_settings",
		})
	}
	async := func(target, fix string) {
		out = append(out, doctor.Finding{
			Level: doctor.Warning, Target: target, Message: fmt.Sprintf("synchronous_commit is off for %s.", target),
			Impact: "A crash of the server can lose the last commits of publishers, messages and business rows alike. Relays do not need it on.",
			Fix: []doctor.Fix{
				{Text: "if it publishes:", Command: fix},
				{Text: "or set deliver_after_flush where relays run, so that no message of a lost commit is delivered"},
			},
			Evidence: "pg_settings and pg_db_role_setting",
		})
	}
	var roles []string
	if err := c.each(ctx, tx, asyncSQL, nil, []any{&name}, func() { roles = append(roles, name) }); err != nil {
		return nil, err
	}
	for _, role := range roles {
		async("role "+role, fmt.Sprintf("alter role %s reset synchronous_commit;", role))
	}
	if settings["synchronous_commit"] == "off" && len(roles) == 0 {
		command, err := resetSQL(ctx, tx, "synchronous_commit", sources["synchronous_commit"])
		if err != nil {
			return nil, err
		}
		async("this connection", command)
	}
	return out, nil
}

// connectionsSQL: without the rights to see sessions, everybody sees how many there are.
const connectionsSQL = `
select current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8,
	(select count(*) from pg_stat_activity where backend_type = 'client backend' or backend_type is null),
	coalesce((select string_agg(n || ' of ' || coalesce(usename, '?'), ', ' order by n desc) from (
		select usename, count(*) as n from pg_stat_activity where datid is not null group by usename order by n desc limit 3) as most), ''),
	(select rolconnlimit from pg_roles where rolname = current_user),
	(select count(*) from pg_stat_activity where usename = current_user)`

// poolNeeds is how many statements a relay has in progress at most: fetch, settle, leases, parked messages and maintenance.
const poolNeeds = 5

func (c checker) connections(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	var allowed, used, limit, own int64
	var most string
	if err := tx.QueryRow(ctx, connectionsSQL).Scan(&allowed, &used, &most, &limit, &own); err != nil {
		return nil, err
	}
	full := func(target, message, command string, used, allowed int64) {
		if allowed <= 0 || float64(used) < c.limits.usedWarning*float64(allowed) {
			return
		}
		level := doctor.Warning
		if float64(used) >= c.limits.usedFault*float64(allowed) {
			level = doctor.Fault
		}
		out = append(out, doctor.Finding{
			Level: level, Target: target, Message: fmt.Sprintf(message, used, allowed),
			Impact: "When all are taken, publishers, relays and consumers cannot connect.",
			Fix: []doctor.Fix{
				{Text: "see who takes them:", Command: "select usename, application_name, state, count(*) from pg_stat_activity group by 1, 2, 3 order by 4 desc;"},
				{Text: "put a pooler in front of the server, or allow more:", Command: command},
			},
			Evidence: "pg_stat_activity: " + most,
		})
	}
	full("the server", "%d of %d connections are taken.", fmt.Sprintf("alter system set max_connections = %d; -- then restart the server", 2*(allowed+3)), used, allowed)
	full("the role of this program", "It has %d of %d connections.", "alter role current_user connection limit -1;", own, limit)
	// handlers is one less than the size, 0 without a limit.
	if size := c.s.pool.handlers() + 1; size > 1 && size < poolNeeds {
		out = append(out, doctor.Finding{
			Level: doctor.Warning, Target: "the pool of this process", Message: fmt.Sprintf("The pool has up to %d connections.", size),
			Impact: "Fetching, settling and leases of relays in this process wait for each other.",
			Fix:    []doctor.Fix{{Text: "allow five more than your own work needs, in the URL of the database:", Command: "pool_max_conns=16"}}, Evidence: "the configuration of the pool",
		})
	}
	return out, nil
}

// pooler makes the connection on which relays listen.
func (c checker) pooler(ctx context.Context) ([]doctor.Finding, error) {
	if !c.s.listens() {
		return nil, nil
	}
	conn, direct, err := c.s.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the server that relays listen to: %w", err)
	}
	conn.Release()
	if direct {
		return nil, nil
	}
	return []doctor.Finding{{
		Level: doctor.Warning, Target: "listen_url", Message: "The address that relays listen to is a pooler.",
		Impact:   "Relays are not notified of commits in other processes, and find messages by polling, about a tenth of a second later.",
		Fix:      []doctor.Fix{{Text: "set listen_url (ListenDSN) to the server itself, or notify to 0s (NotifyEvery to -1) if polling is enough"}},
		Evidence: "another process of the server answers than the one that the connection began with",
	}}, nil
}

const standbySQL = `select pg_is_in_recovery(), reset_val = 'on', source from pg_settings where name = 'default_transaction_read_only'`

func (c checker) standby(ctx context.Context, tx pgx.Tx) ([]doctor.Finding, error) {
	var recovering, readOnly bool
	var source string
	if err := tx.QueryRow(ctx, standbySQL).Scan(&recovering, &readOnly, &source); err != nil {
		return nil, err
	}
	f := doctor.Finding{Level: doctor.Fault, Target: "the server", Impact: "Nothing can be published, delivered or decided through it.", Evidence: "pg_is_in_recovery()"}
	switch {
	case recovering:
		f.Message = "This server is a standby."
		f.Fix = []doctor.Fix{{Text: "use the address of the primary; with several hosts in the URL, add:", Command: "target_session_attrs=read-write"}}
	case readOnly:
		f.Message, f.Evidence = "Transactions are read-only by default.", "default_transaction_read_only is on, by its "+source
		command, err := resetSQL(ctx, tx, "default_transaction_read_only", source)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(command, "alter system") {
			command = "begin read write; " + command + " commit;"
		}
		f.Fix = []doctor.Fix{{Text: "then connect again:", Command: command}}
	default:
		return nil, nil
	}
	return []doctor.Finding{f}, nil
}

// resetSQL is the statement that resets a setting where it was made: source as pg_settings says it.
func resetSQL(ctx context.Context, tx pgx.Tx, name, source string) (sql string, err error) {
	var role, database string
	if err := tx.QueryRow(ctx, "select quote_ident(current_user), quote_ident(current_database())").Scan(&role, &database); err != nil {
		return "", err
	}
	switch source {
	case "database":
		return fmt.Sprintf("alter database %s reset %s;", database, name), nil
	case "user":
		return fmt.Sprintf("alter role %s reset %s;", role, name), nil
	case "database user":
		return fmt.Sprintf("alter role %s in database %s reset %s;", role, database, name), nil
	}
	return fmt.Sprintf("alter system reset %s; select pg_reload_conf();", name), nil
}
