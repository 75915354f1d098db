package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/internal/stored"
)

// checkLimits are those from which checks report something. Tests lower them.
type checkLimits struct {
	openFor, openFault, blockedFor time.Duration
	usedWarning, usedFault         float64
}

var defaultLimits = checkLimits{10 * time.Minute, time.Hour, 5 * time.Second, 0.8, 0.95}

var _ doctor.Checker = (*Store)(nil)

// Checks implements doctor.Checker. MySQL has no slots and no vacuum, and this store needs no session of its own.
func (s *Store) Checks() []doctor.Check { return s.checks(defaultLimits) }

func (s *Store) checks(l checkLimits) []doctor.Check {
	c := checker{s, l}
	return []doctor.Check{
		{Name: "schema.version", Title: "This program and the schema match", Run: c.version},
		{Name: "schema.objects", Title: "No table, index or procedure of the outbox is missing", Run: c.objects},
		{Name: "schema.rights", Title: "The account has all rights for its work", Run: c.rights},
		doctor.Clock(c.clock),
		{Name: "db.durability", Title: "The server keeps what it has committed", Run: c.durability},
		{Name: "db.connections", Title: "The server has free connections", Run: c.connections},
		{Name: "db.standby", Title: "The server accepts changes", Run: c.standby},
		{Name: "db.old_transaction", Title: "No transaction is open for long", Run: c.oldTransactions},
		{Name: "db.blocked", Title: "Nobody waits long for a lock", Run: c.blocked},
		doctor.Maintenance(s, nil),
	}
}

// checker has the checks of a store.
type checker struct {
	s      *Store
	limits checkLimits
}

func (c checker) clock(ctx context.Context) (time.Time, error) {
	var now int64
	err := c.s.pooled().get(ctx, "SELECT {now}", nil, &now)
	return stored.Time(now), err
}

func (c checker) version(ctx context.Context) ([]doctor.Finding, error) {
	set, err := c.s.cfg.migrations(engineMemory)
	if err != nil {
		return nil, err
	}
	applied, err := c.s.appliedVersions(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(applied, func(_ int, at time.Time) bool { return at.IsZero() })
	return doctor.SchemaVersion(c.s.cfg.Prefix+"migrations", set.Status(migrate.Records(applied))), nil
}

const objectsSQL = `SELECT 'table', '', table_name, '' FROM information_schema.tables
		WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?1)) = CONVERT(?1 USING utf8mb4)
	UNION ALL SELECT 'column', table_name, column_name, '' FROM information_schema.columns
		WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?1)) = CONVERT(?1 USING utf8mb4)
	UNION ALL SELECT 'index', table_name, index_name, CONCAT(IF(MIN(non_unique) = 0, 'UNIQUE ', ''),
			'(', GROUP_CONCAT(CONCAT(column_name, IF(sub_part IS NULL, '', CONCAT('(', sub_part, ')'))) ORDER BY seq_in_index SEPARATOR ', '), ')')
		FROM information_schema.statistics WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?1)) = CONVERT(?1 USING utf8mb4)
		GROUP BY table_name, index_name
	UNION ALL SELECT LOWER(routine_type), '', routine_name, '' FROM information_schema.routines
		WHERE routine_schema = DATABASE() AND LEFT(routine_name, CHAR_LENGTH(?1)) = CONVERT(?1 USING utf8mb4)
	ORDER BY 1, 2, 3`

//go:embed objects.txt
var objectsText string

// Objects returns what the database has of the outbox: the tests compare objects.txt with it.
func (s *Store) Objects(ctx context.Context) (out []doctor.Object, err error) {
	prefix := s.cfg.Prefix
	err = s.pooled().each(ctx, objectsSQL, []any{prefix}, func(rows *sql.Rows) error {
		var o doctor.Object
		if err := rows.Scan(&o.Kind, &o.Table, &o.Name, &o.Definition); err != nil {
			return err
		}
		o.Table = strings.TrimPrefix(o.Table, prefix)
		if unique, columns, ok := strings.Cut(o.Definition, "("); o.Kind == "index" && ok {
			o.Definition = fmt.Sprintf("CREATE %sINDEX %s ON {prefix}%s (%s", unique, o.Name, o.Table, columns)
		}
		if o.Kind != "column" && o.Kind != "index" {
			o.Name = strings.TrimPrefix(o.Name, prefix)
		}
		out = append(out, o)
		return nil
	})
	return out, s.cfg.explain("read the catalog", err)
}

func (c checker) objects(ctx context.Context) ([]doctor.Finding, error) {
	present, err := c.s.Objects(ctx)
	if err != nil {
		return nil, err
	}
	return doctor.MissingObjects(doctor.ParseObjects(objectsText), present, c.s.cfg.Prefix, c.s.expand), nil
}

// grantLine is a statement of a file of grants that gives rights to a whole table.
var grantLine = regexp.MustCompile(`GRANT ([A-Z, ]+) ON \{prefix\}([a-z_]+) TO \{role\};`)

const (
	accountSQL = `SELECT CURRENT_USER(), DATABASE()`
	// heldRightsSQL lists the rights of an account to a table, ?1 as information_schema writes the account.
	heldRightsSQL = `SELECT '*', privilege_type FROM information_schema.user_privileges WHERE grantee = ?1
		UNION ALL SELECT '*', privilege_type FROM information_schema.schema_privileges WHERE grantee = ?1 AND DATABASE() LIKE table_schema
		UNION ALL SELECT table_name, privilege_type FROM information_schema.table_privileges WHERE grantee = ?1 AND table_schema = DATABASE()`
)

// jobs are those that an account is known to have by a right to a table that no other job has.
var jobs = []struct{ name, table, right string }{{"relay", "log", "DELETE"}, {"consumer", "claims", "INSERT"}, {"admin", "audit", "INSERT"}}

// rights finds what the account of this connection lacks for the job that it seems to have.
func (c checker) rights(ctx context.Context) (out []doctor.Finding, err error) {
	var account, database string
	if err := c.s.pooled().get(ctx, accountSQL, nil, &account, &database); err != nil {
		return nil, err
	}
	user, host, _ := strings.Cut(account, "@")
	grantee := fmt.Sprintf("'%s'@'%s'", user, host)
	held := map[string]bool{}
	err = c.s.pooled().each(ctx, heldRightsSQL, []any{grantee}, func(rows *sql.Rows) error {
		var table, right string
		err := rows.Scan(&table, &right)
		held[table+" "+right] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		has := func(table, right string) bool { return held["* "+right] || held[c.s.cfg.Prefix+table+" "+right] }
		if !has(job.table, job.right) {
			continue
		}
		text, err := grantFiles.ReadFile("grants/" + job.name + ".sql")
		if err != nil {
			return nil, err
		}
		var lacks []string
		for _, m := range grantLine.FindAllStringSubmatch(string(text), -1) {
			for right := range strings.SplitSeq(m[1], ", ") {
				if !has(m[2], right) {
					lacks = append(lacks, fmt.Sprintf("GRANT %s ON %s.%s%s TO %s;", right, database, c.s.cfg.Prefix, m[2], grantee))
				}
			}
		}
		if len(lacks) > 0 {
			out = append(out, doctor.Finding{
				Level: doctor.Fault, Target: "account " + account, Message: fmt.Sprintf("Account %s has the rights of a %s, except %d.", account, job.name, len(lacks)),
				Impact:   "A program with this account fails at its work.",
				Fix:      []doctor.Fix{{Text: "as an account with GRANT OPTION:", Command: strings.Join(lacks, "\n")}},
				Evidence: "the rights of the account, compared with those that postrider migrate grants gives",
			})
		}
	}
	return out, nil
}

const durabilitySQL = `SELECT @@innodb_flush_log_at_trx_commit, IF(@@log_bin, @@sync_binlog, 1), @@innodb_doublewrite <> '0' AND @@innodb_doublewrite <> 'OFF'`

func (c checker) durability(ctx context.Context) (out []doctor.Finding, err error) {
	var flush, sync int
	var doublewrite bool
	if err := c.s.pooled().get(ctx, durabilitySQL, nil, &flush, &sync, &doublewrite); err != nil {
		return nil, err
	}
	off := func(level doctor.Level, setting, value, impact, command string) {
		out = append(out, doctor.Finding{
			Level: level, Target: "the server", Message: fmt.Sprintf("%s is %s.", setting, value), Impact: impact, Evidence: "the variables of the server",
			Fix: []doctor.Fix{{Text: "and in the server's configuration file:", Command: command}},
		})
	}
	const lost = "A crash of the server can lose the last commits, messages and business rows alike."
	if flush != 1 {
		off(doctor.Warning, "innodb_flush_log_at_trx_commit", fmt.Sprint(flush), lost, "SET GLOBAL innodb_flush_log_at_trx_commit = 1;")
	}
	if sync != 1 {
		off(doctor.Warning, "sync_binlog", fmt.Sprint(sync), lost, "SET GLOBAL sync_binlog = 1;")
	}
	if !doublewrite {
		off(doctor.Fault, "innodb_doublewrite", "off", "A crash of the machine can damage pages of tables.", "innodb_doublewrite = 1 # then restart the server")
	}
	return out, nil
}

func (c checker) connections(ctx context.Context) ([]doctor.Finding, error) {
	var name string
	var used, allowed int64
	if err := c.s.pooled().get(ctx, `SHOW GLOBAL STATUS LIKE 'Threads_connected'`, nil, &name, &used); err != nil {
		return nil, err
	}
	if err := c.s.pooled().get(ctx, `SELECT @@max_connections`, nil, &allowed); err != nil {
		return nil, err
	}
	if float64(used) < c.limits.usedWarning*float64(allowed) {
		return nil, nil
	}
	f := doctor.Finding{
		Level: doctor.Warning, Target: "the server", Message: fmt.Sprintf("%d of %d connections are taken.", used, allowed),
		Impact: "When all are taken, publishers, relays and consumers cannot connect.",
		Fix: []doctor.Fix{
			{Text: "see who takes them:", Command: "SELECT user, COUNT(*) FROM information_schema.processlist GROUP BY user ORDER BY 2 DESC;"},
			{Text: "allow more, also in the server's configuration file:", Command: fmt.Sprintf("SET GLOBAL max_connections = %d;", 2*allowed)},
		},
		Evidence: "Threads_connected",
	}
	if float64(used) >= c.limits.usedFault*float64(allowed) {
		f.Level = doctor.Fault
	}
	return []doctor.Finding{f}, nil
}

func (c checker) standby(ctx context.Context) ([]doctor.Finding, error) {
	var readOnly string
	if err := c.s.pooled().get(ctx, `SELECT @@global.read_only`, nil, &readOnly); err != nil {
		return nil, err
	}
	if slices.Contains([]string{"0", "OFF", "NO_LOCK"}, strings.ToUpper(readOnly)) {
		return nil, nil
	}
	return []doctor.Finding{{
		Level: doctor.Fault, Target: "the server", Message: "The server is read-only.",
		Impact:   "Nothing can be published, delivered or decided through it.",
		Fix:      []doctor.Fix{{Text: "if it is a replica, use the address of the primary; otherwise:", Command: "SET GLOBAL read_only = 0;"}},
		Evidence: "the variable read_only",
	}}, nil
}

// denied turns the error of a missing right into a *doctor.MissingError.
func (c checker) denied(ctx context.Context, err error) error {
	if err = c.s.cfg.explain("look at other sessions", err); !errors.Is(err, ErrDenied) {
		return err
	}
	var account, database string
	if err := c.s.pooled().get(ctx, accountSQL, nil, &account, &database); err != nil {
		return err
	}
	user, host, _ := strings.Cut(account, "@")
	return &doctor.MissingError{
		Reason: fmt.Sprintf("account %s does not see what other sessions do", account),
		Fix:    doctor.Fix{Text: "as an administrator of the server:", Command: fmt.Sprintf("GRANT PROCESS ON *.* TO '%s'@'%s';", user, host)},
	}
}

// openSQL lists transactions that have changed rows and are open for longer than ?1 seconds. Prepared ones have no thread.
const openSQL = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), t.trx_rows_modified, COALESCE(p.user, ''), COALESCE(p.command, '')
	FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
	WHERE t.trx_rows_modified > 0 AND t.trx_started < NOW() - INTERVAL ?1 SECOND AND t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started`

func (c checker) oldTransactions(ctx context.Context) (out []doctor.Finding, err error) {
	err = c.s.pooled().each(ctx, openSQL, []any{int64(c.limits.openFor.Seconds())}, func(rows *sql.Rows) error {
		var thread, age, changed int64
		var user, command string
		if err := rows.Scan(&thread, &age, &changed, &user, &command); err != nil {
			return err
		}
		f := doctor.Finding{
			Level: doctor.Warning, Target: fmt.Sprintf("thread %d", thread),
			Message: fmt.Sprintf("A transaction that has changed %s is open for %s.", plain.Count(changed, "row"), plain.Duration(time.Duration(age)*time.Second, " ")),
			Impact:  "If it has published, its messages wait for its commit, and relays remember a gap for each. It also holds back purge.",
			Fix: []doctor.Fix{
				{Text: "find out what it does; to end it:", Command: fmt.Sprintf("KILL %d;", thread)},
			},
			Evidence: fmt.Sprintf("information_schema.innodb_trx: user %s, %s", cmp.Or(user, "?"), cmp.Or(command, "?")),
		}
		if thread == 0 {
			f.Target = "a prepared transaction"
			f.Fix = []doctor.Fix{{Text: "nobody ends it by itself; see its name, then XA COMMIT or XA ROLLBACK it:", Command: "XA RECOVER;"}}
		}
		if age >= int64(c.limits.openFault.Seconds()) {
			f.Level = doctor.Fault
		}
		out = append(out, f)
		return nil
	})
	return out, c.denied(ctx, err)
}

// blockedSQL lists transactions that wait for a lock for longer than ?1 seconds, with those that block them. {waits} is the table of
// MySQL or of MariaDB.
const (
	blockedSQL = `SELECT r.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, r.trx_wait_started, NOW()), b.trx_mysql_thread_id
		FROM {waits} JOIN information_schema.innodb_trx r ON r.trx_id = {waiting} JOIN information_schema.innodb_trx b ON b.trx_id = {blocking}
		WHERE r.trx_wait_started < NOW() - INTERVAL ?1 SECOND ORDER BY 2 DESC LIMIT 10`
)

func (c checker) blocked(ctx context.Context) (out []doctor.Finding, err error) {
	waits := strings.NewReplacer("{waits}", "performance_schema.data_lock_waits w", "{waiting}", "w.REQUESTING_ENGINE_TRANSACTION_ID",
		"{blocking}", "w.BLOCKING_ENGINE_TRANSACTION_ID")
	if c.s.server.mariaDB() {
		waits = strings.NewReplacer("{waits}", "information_schema.innodb_lock_waits w", "{waiting}", "w.requesting_trx_id", "{blocking}", "w.blocking_trx_id")
	}
	seen := map[int64]bool{}
	err = c.s.pooled().each(ctx, waits.Replace(blockedSQL), []any{int64(c.limits.blockedFor.Seconds())}, func(rows *sql.Rows) error {
		var waiting, age, blocking int64
		if err := rows.Scan(&waiting, &age, &blocking); err != nil || seen[waiting] {
			return err
		}
		seen[waiting] = true
		out = append(out, doctor.Finding{
			Level: doctor.Fault, Target: fmt.Sprintf("thread %d", waiting),
			Message:  fmt.Sprintf("Thread %d waits for a lock for %s.", waiting, plain.Duration(time.Duration(age)*time.Second, " ")),
			Impact:   "Until the lock is released, it does nothing; after innodb_lock_wait_timeout it fails.",
			Fix:      []doctor.Fix{{Text: "find out what holds the lock; to end it:", Command: fmt.Sprintf("KILL %d;", blocking)}},
			Evidence: fmt.Sprintf("thread %d holds the lock", blocking),
		})
		return nil
	})
	return out, c.denied(ctx, err)
}
