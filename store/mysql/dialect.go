package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file contains all differences between MySQL and MariaDB, and the requirements on both.

// The oldest versions with FOR UPDATE SKIP LOCKED and NOWAIT and, on MySQL, defaults that are expressions.
var (
	oldestMySQL   = [3]int{8, 0, 13}
	oldestMariaDB = [3]int{10, 6, 0}
)

// Error numbers. When NOWAIT meets a lock, MariaDB returns the number of a lock timeout, MySQL a separate number. Since 11.6,
// MariaDB with innodb_snapshot_isolation on refuses to lock rows that have changed since a REPEATABLE READ transaction began.
const (
	codeDuplicate      = 1062
	codeNoTable        = 1146
	codeLockTimeout    = 1205
	codeDeadlock       = 1213
	codeTwoRows        = 1242
	codeNoneSuch       = 1305 // a savepoint, function or procedure
	codeMySQLNoWait    = 3572
	codeMariaDBChanged = 1020
	codeLeaseLost      = 50001 // raised by the store's procedure
	codeNotParked      = 50002 // raised by the store's procedure
)

// kinds maps error numbers to the store's errors.
var kinds = map[int]error{
	codeDeadlock:       ErrDeadlock,
	codeMariaDBChanged: ErrDeadlock,
	codeLockTimeout:    ErrLockTimeout,
	codeMySQLNoWait:    ErrLockTimeout,
	1290:               ErrReadOnly, // the server runs with --read-only
	1792:               ErrReadOnly, // a read-only transaction
	1836:               ErrReadOnly, // super_read_only while it recovers
	1044:               ErrDenied,   // to the database
	1142:               ErrDenied,   // to a table
	1143:               ErrDenied,   // to a column
	1227:               ErrDenied,   // to something server-wide
	1370:               ErrDenied,   // to a procedure
	1021:               ErrFull,     // the disk
	1114:               ErrFull,     // the table
	1153:               ErrTooLarge, // max_allowed_packet
}

// unstorable are the error numbers of values that a column does not take: null, out of range, wrong, too long, and larger than
// max_allowed_packet.
var unstorable = [...]int{1048, 1264, 1292, 1366, 1406, 1153, 1301}

// ofServer are the error numbers of a server that shuts down, is short of something, or ends a connection or statement.
var ofServer = [...]int{
	1037, 1038, 1041, 1135, // memory, threads
	1040, 1203, 1226, // connections, and other limits of a user
	1047, 1053, 1077, 1079, 3032, // it shuts down, is offline, or does not take part in its cluster yet
	1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 4031, 9001, // the connection was ended, perhaps by a proxy
	1180, 3101, // a commit failed
	1206,             // the memory for locks is full
	1317, 1969, 3024, // a statement was ended, by an operator or its time limit
}

// codeOf finds the number in errors with a field Number. This package imports no driver, so that its users can choose one.
func codeOf(err error) int {
	for err != nil {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct {
			if n := v.FieldByName("Number"); n.IsValid() && n.CanUint() {
				return int(n.Uint())
			}
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if code := codeOf(e); code != 0 {
					return code
				}
			}
			return 0
		}
		err = errors.Unwrap(err)
	}
	return 0
}

// server holds what a server reports about itself.
type server struct {
	version            string
	globalStep, step   int // auto_increment_increment
	readOnly, binlog   bool
	binlogFormat, mode string
	maxPacket          int
	autocommit         bool
	variables          map[string]string // those of variablesSQL that the server has, by lower-case name
}

const serverSQL = `SELECT VERSION(), @@global.auto_increment_increment, @@auto_increment_increment, @@global.read_only,
	@@global.log_bin, @@binlog_format, @@sql_mode, @@max_allowed_packet, @@autocommit`

// variablesSQL reads variables that not every server has. MySQL and newer versions of MariaDB call tx_isolation
// transaction_isolation.
const variablesSQL = `SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation', 'wsrep_on',
	'disabled_storage_engines', 'group_replication_group_name', 'group_replication_single_primary_mode')`

func (v *server) scanVariable(rows *sql.Rows) error {
	var name, value string
	err := rows.Scan(&name, &value)
	if v.variables == nil {
		v.variables = make(map[string]string)
	}
	v.variables[strings.ToLower(name)] = value
	return err
}

func (v *server) mariaDB() bool { return strings.Contains(v.version, "MariaDB") }

// groupReplication reports whether the server is a member of a replication group, in which only InnoDB tables can be written.
func (v *server) groupReplication() bool { return v.variables["group_replication_group_name"] != "" }

// The engines of the incarnations table.
const (
	engineMemory = "MEMORY"
	engineInnoDB = "InnoDB"
)

// incarnationsEngine returns MEMORY, or InnoDB on a server that does not allow MEMORY.
func (v *server) incarnationsEngine() string {
	if v.groupReplication() || strings.Contains(strings.ToUpper(v.variables["disabled_storage_engines"]), engineMemory) {
		return engineInnoDB
	}
	return engineMemory
}

// checkCluster refuses clusters in which all nodes accept writes: a lock applies to one node only.
func (v *server) checkCluster(fault func(format string, args ...any)) {
	if strings.EqualFold(v.variables["wsrep_on"], "ON") {
		fault("wsrep_on is ON: the server belongs to a Galera cluster, whose nodes all take writes while locks count for one node only")
	}
	if v.groupReplication() && strings.EqualFold(v.variables["group_replication_single_primary_mode"], "OFF") {
		fault("group_replication_single_primary_mode is OFF: all members take writes while locks count for one member only; " +
			"switch to single-primary mode with SELECT group_replication_switch_to_single_primary_mode()")
	}
}

// serverNameSQL names the server. MySQL has a UUID; MariaDB, where /*!80000 begins a comment, has none.
const serverNameSQL = `CONCAT_WS('/', /*!80000 @@server_uuid, */ @@GLOBAL.server_id, @@hostname, @@port)`

// The server ends a transaction that waits for its next statement for longer than a session variable says. Sessions belong to the
// caller's pool, so the old value is restored when the transaction ends. MySQL has no limit for transactions only.
const (
	limitSQL = `SET @postrider_idle = COALESCE(@postrider_idle, @@SESSION.{idle}),
		SESSION {idle} = IF(@@SESSION.{idle} BETWEEN 1 AND {seconds}, @@SESSION.{idle}, {seconds})`
	unlimitSQL  = `SET SESSION {idle} = CAST(COALESCE(@postrider_idle, @@SESSION.{idle}) AS UNSIGNED), @postrider_idle = NULL`
	idleMariaDB = `idle_transaction_timeout`
	idleMySQL   = `wait_timeout`
)

// unlimitAnywhereSQL is unlimitSQL for a procedure: each server treats the part for the other as a comment.
var unlimitAnywhereSQL = `/*M!100000 ` + idleVariable(unlimitSQL, idleMariaDB, 0) + `; */ /*!80000 ` + idleVariable(unlimitSQL, idleMySQL, 0) + `; */`

func idleVariable(text, name string, limit time.Duration) string {
	return strings.NewReplacer("{idle}", name, "{seconds}", strconv.Itoa(int(limit/time.Second))).Replace(text)
}

// limits returns the statements that set the limit and restore the old value; "" for both if there is no limit.
func (s *Store) limits() (limit, unlimit string) { return s.limitsOf(s.cfg.IdleTimeout) }

func (s *Store) limitsOf(idle time.Duration) (limit, unlimit string) {
	if idle < 0 {
		return "", ""
	}
	name := idleMySQL
	if s.server.mariaDB() {
		name = idleMariaDB
	}
	return idleVariable(limitSQL, name, idle), idleVariable(unlimitSQL, name, idle)
}

// sequence executes statements in order until one fails; on MariaDB in one round trip.
func (s *Store) sequence(ctx context.Context, on executor, statements ...string) error {
	statements = slices.DeleteFunc(statements, func(text string) bool { return text == "" })
	if s.server.mariaDB() && len(statements) > 1 {
		statements = []string{atOnce(statements...)}
	}
	for _, text := range statements {
		if _, err := on.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// atOnce combines statements into one, on MariaDB.
func atOnce(statements ...string) string {
	return `BEGIN NOT ATOMIC ` + strings.Join(statements, `; `) + `; END`
}

func (v *server) dest() []any {
	return []any{&v.version, &v.globalStep, &v.step, &v.readOnly, &v.binlog, &v.binlogFormat, &v.mode, &v.maxPacket,
		&v.autocommit}
}

// check reports everything that is wrong with a server and how to fix it.
func (v *server) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	name, oldest := "MySQL", oldestMySQL
	if v.mariaDB() {
		name, oldest = "MariaDB", oldestMariaDB
	}
	var have [3]int
	text := strings.TrimPrefix(v.version, "5.5.5-") // MariaDB adds this for old replication clients
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &have[0], &have[1], &have[2]); n < 3 {
		fault("the server's version %q cannot be read: %w", v.version, err)
	} else if older(have, oldest) {
		fault("the server is %s %s; use %[1]s %[3]d.%[4]d.%[5]d or newer", name, v.version, oldest[0], oldest[1], oldest[2])
	}
	if v.globalStep != 1 || v.step != 1 {
		fault("auto_increment_increment is %d: sequences that are never used look like messages that have not been committed yet; "+
			"set it to 1", max(v.globalStep, v.step))
	}
	if v.readOnly {
		fault("the server is read_only; connect to the primary")
	}
	if v.binlog && v.binlogFormat == "STATEMENT" {
		fault("binlog_format is STATEMENT, with which nothing can be written at READ COMMITTED; set it to ROW or MIXED")
	}
	v.checkCluster(fault)
	if cmp.Or(v.variables["transaction_isolation"], v.variables["tx_isolation"]) == "READ-UNCOMMITTED" {
		fault("transactions are READ UNCOMMITTED unless they say otherwise, and messages would be delivered before they are committed; " +
			"set transaction_isolation to READ-COMMITTED or REPEATABLE-READ")
	}
	if !v.autocommit {
		fault("autocommit is off, so that what is written without a transaction is never committed; leave it on")
	}
	if !strings.Contains(v.mode, "STRICT_TRANS_TABLES") && !strings.Contains(v.mode, "STRICT_ALL_TABLES") &&
		!strings.Contains(v.mode, "TRADITIONAL") {
		fault("sql_mode %q is not strict, so that values are cut without an error; add STRICT_TRANS_TABLES (in the driver's DSN: "+
			"sql_mode=%%27STRICT_TRANS_TABLES%%27)", v.mode)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsuitable, errors.Join(faults...))
}

const hashSQL = `SELECT MD5('')`

// checkHash makes sure that the server can compute the partition of a key, which Go code otherwise does. MySQL has MD5() in a
// component since 9.6, and it returns NULL where FIPS forbids it.
func (s *Store) checkHash(ctx context.Context) error {
	var hash sql.NullString
	err := s.pooled().get(ctx, hashSQL, nil, &hash)
	if s.cfg.ErrorCode(err) == codeNoneSuch || err == nil && !hash.Valid {
		return fmt.Errorf("%w: this server has no MD5(); INSTALL COMPONENT 'file://component_classic_hashing', and no FIPS mode", ErrUnsuitable)
	}
	return err
}

func older(have, oldest [3]int) bool {
	for i := range have {
		if have[i] != oldest[i] {
			return have[i] < oldest[i]
		}
	}
	return false
}
