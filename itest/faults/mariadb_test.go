package faults

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// mariaDefaults restores durability, which the settings of test servers give up for speed.
var mariaDefaults = []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON", "--sync-binlog=0",
	"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=96M"}

// mariaWorld is a world on its own MariaDB server.
type mariaWorld struct {
	*world
	data   *process.MariaDB
	server *process.Server
}

// newMariaWorld starts a server and creates outbox and tables in its database shop.
func newMariaWorld(t *testing.T, settings ...string) *mariaWorld {
	t.Helper()
	dir := serverDir(t)
	data, server := startMaria(t, dir, settings...)
	m := &mariaWorld{world: newWorld(t, dir, server.URL+"shop"), data: data, server: server}
	t.Cleanup(m.kill)
	admin := openMaria(t, server.URL, 1)
	if _, err := admin.ExecContext(t.Context(), "create database shop"); err != nil {
		t.Fatal(err)
	}
	m.reopen()
	m.makeTables(fmt.Sprintf(loadSQL, "bigint auto_increment", "datetime(6) not null default sysdate(6)"))
	return m
}

// reopen opens the test's own connections to the URL.
func (m *mariaWorld) reopen() { m.db = openMaria(m.t, m.url, 4) }

func startMaria(t *testing.T, dir string, settings ...string) (*process.MariaDB, *process.Server) {
	t.Helper()
	bin := servertest.Get(t, servertest.MariaDBBin)
	data, err := process.NewMariaDB(t.Context(), bin, dir, append(mariaDefaults, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	server, err := data.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return data, server
}

// secondDir is a folder for another server.
func (w *world) secondDir() string {
	w.t.Helper()
	dir := filepath.Join(w.dir, "second")
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

func (m *mariaWorld) kill() {
	_ = m.server.Signal(syscall.SIGKILL) // it may have ended
	<-m.server.Done()
}

// crash kills the server and starts it again.
func (m *mariaWorld) crash() {
	m.t.Helper()
	m.kill()
	var err error
	if m.server, err = m.data.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func openMaria(t *testing.T, address string, size int) *sql.DB {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.Trim(u.Path, "/")
	c.Logger = &mysql.NopLogger{} // the tests break connections on purpose
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// store opens a store with its own connections.
func (m *mariaWorld) store(size int) *mysqlstore.Store {
	m.t.Helper()
	return mariaStore(m.t, m.url, size)
}

func mariaStore(t *testing.T, address string, size int) *mysqlstore.Store {
	t.Helper()
	store, err := mysqlstore.New(openMaria(t, address, size), mysqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// startReplica starts a replica of this server.
func (m *mariaWorld) startReplica() *process.Server {
	m.t.Helper()
	_, replica := startMaria(m.t, m.secondDir(), "--log-bin=binlog", "--server-id=2", "--binlog-format=ROW", "--read-only=1")
	m.t.Cleanup(func() {
		_ = replica.Signal(syscall.SIGKILL) // it may have ended
		<-replica.Done()
	})
	m.onReplica(replica, fmt.Sprintf("change master to master_host='127.0.0.1', master_port=%d, master_user='root', "+
		"master_use_gtid=slave_pos", m.data.Port), "start slave")
	return replica
}

func (m *mariaWorld) onReplica(replica *process.Server, statements ...string) {
	m.t.Helper()
	db := openMaria(m.t, replica.URL, 1)
	for _, s := range statements {
		if _, err := db.ExecContext(m.t.Context(), s); err != nil {
			m.t.Fatalf("%s: %v", s, err)
		}
	}
}

// lag stops replication to the replica.
func (m *mariaWorld) lag(replica *process.Server) {
	m.t.Helper()
	m.onReplica(replica, "stop slave io_thread")
}

// promote makes the replica writable, once it has applied what it received.
func (m *mariaWorld) promote(replica *process.Server) {
	m.t.Helper()
	db := openMaria(m.t, replica.URL, 1)
	await(m.t, "the replica has applied what it received", func() string {
		var idle int
		if err := db.QueryRowContext(m.t.Context(), `select count(*) from information_schema.processlist
			where state like 'Slave has read all relay log%'`).Scan(&idle); err != nil {
			return err.Error()
		}
		if idle == 0 {
			return "it is at work"
		}
		return ""
	})
	m.onReplica(replica, "stop slave", "reset slave all", "set global read_only = 0")
}
