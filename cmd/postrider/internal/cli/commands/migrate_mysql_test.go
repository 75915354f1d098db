package commands_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// TestMySQLSaysWhatToDo: an error in a URL, a server or a user's privileges includes its fix, without the password.
func TestMySQLSaysWhatToDo(t *testing.T) {
	t.Parallel()
	u := clitest.NewMySQL(t)
	_, admin := clitest.MySQLServer(t)
	clitest.OK(t, "migrate", "up", "--store", u.String())
	clitest.PublishKeys(t, u.String(), "order/1")
	user := "cmd_" + strings.ToLower(rand.Text()[:10])
	exec := func(statement string) {
		t.Helper()
		_, err := admin.ExecContext(context.Background(), statement)
		clitest.Must(t, err)
	}
	exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'Secret-4711'")
	t.Cleanup(func() { exec("DROP USER " + user + "@'%'") })
	as := func(password, database string) string {
		other := *u
		other.User, other.Path = url.UserPassword(user, password), "/"+database
		return other.String()
	}
	mine := u.Path[1:]
	refused := func(words string, args ...string) {
		t.Helper()
		r := clitest.Run(t, args...)
		clitest.Expect(t, r, program.ExitFailed, words, args...)
		if strings.Contains(r.Err, "Secret") {
			t.Errorf("the error gives the password away:\n%s", r.Err)
		}
	}
	nowhere := *u
	nowhere.Host = "127.0.0.1:1"
	refused("is the server running there", "status", "--store", nowhere.String())
	missing := *u
	missing.Path = "/not_there"
	refused("CREATE DATABASE not_there", "status", "--store", missing.String())
	refused("check the user and the password", "status", "--store", as("Secret-wrong", mine))
	refused("GRANT", "status", "--store", as("Secret-4711", mine)) // no privileges in the database
	exec("GRANT SELECT ON " + mine + ".* TO " + user + "@'%'")
	clitest.OK(t, "status", "--store", as("Secret-4711", mine))
	refused("docs/stores/mysql.md", "publish", "--store", as("Secret-4711", mine), "--type", "t", "--payload", "{}")
	refused("docs/stores/mysql.md", "outbox", "partitions", "3", "--yes", "--store", as("Secret-4711", mine))
	refused("docs/stores/mysql.md", "migrate", "down", "--to", "0", "--yes", "--store", as("Secret-4711", mine))
	clitest.Fails(t, program.ExitUsage, "names no host or no database", "status", "--store", "mysql://127.0.0.1")
	clitest.Fails(t, program.ExitUsage, "options of github.com/go-sql-driver/mysql", "status", "--store", u.String()+"?tls=perhaps")
}
