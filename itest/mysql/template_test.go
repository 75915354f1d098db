package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// templates are databases of one server with a migrated outbox, each created when it is first needed.
type templates struct {
	byPartitions sync.Map // to functions that create a template
}

// shared are those of the server that all tests share.
var shared templates

// template is a database with a migrated outbox.
type template struct {
	server *mysql.Config
	name   string
	copied string // the statements that create its tables, rows and procedures in another database
}

// clone creates a database with an outbox and connects to it. Copying a template takes a fraction of the time of the migrations.
func (ts *templates) clone(t testing.TB, on *mysql.Config, partitions int) (database, *sql.DB) {
	t.Helper()
	create, _ := ts.byPartitions.LoadOrStore(partitions, sync.OnceValues(func() (template, error) { return newTemplate(on, partitions) }))
	from, err := create.(func() (template, error))()
	must(t, err)
	d := databaseOn(t, on)
	several := d.config.Clone()
	several.MultiStatements = true
	exec(t, open(t, several), from.copied)
	return d, d.open(t, on.Params)
}

func newTemplate(on *mysql.Config, partitions int) (t template, err error) {
	t = template{server: on.Clone(), name: "t_template_" + strings.ReplaceAll(postrider.NewID(), "-", "")}
	if err := t.admin("CREATE DATABASE " + t.name); err != nil {
		return t, err
	}
	in := on.Clone()
	in.DBName = t.name
	connector, err := mysql.NewConnector(in)
	if err != nil {
		return t, err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := mysqlstore.Migrate(context.Background(), db, mysqlstore.Config{Partitions: partitions}, mysqlstore.Latest); err != nil {
		return t, err
	}
	t.copied, err = t.statements(db)
	return t, err
}

// statements returns the statements that copy the template into the database of a connection.
func (t template) statements(db *sql.DB) (string, error) {
	tables, err := names(db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&b, "CREATE TABLE %s LIKE %s.%s;\n", table, t.name, table)
		var rows bool
		if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM " + table + ")").Scan(&rows); err != nil {
			return "", err
		}
		if rows {
			fmt.Fprintf(&b, "INSERT INTO %s SELECT * FROM %s.%s;\n", table, t.name, table)
		}
	}
	procedures, err := names(db, "SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()")
	if err != nil {
		return "", err
	}
	for _, procedure := range procedures {
		var text string
		var other [5]sql.RawBytes
		rows, err := db.Query("SHOW CREATE PROCEDURE " + procedure)
		if err != nil {
			return "", err
		}
		rows.Next()
		err = rows.Scan(&other[0], &other[1], &text, &other[2], &other[3], &other[4])
		if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s;\n", text)
	}
	return b.String(), nil
}

// names reads one column of names.
func names(db *sql.DB, query string) (all []string, err error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all = append(all, name)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// admin runs a statement outside any database.
func (t template) admin(text string) error {
	connector, err := mysql.NewConnector(t.server)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.Exec(text)
	return errors.Join(err, db.Close())
}

// drop drops the templates.
func (ts *templates) drop() (err error) {
	for _, create := range ts.byPartitions.Range {
		if t, failed := create.(func() (template, error))(); failed == nil {
			err = errors.Join(err, t.admin("DROP DATABASE "+t.name))
		}
	}
	return err
}
