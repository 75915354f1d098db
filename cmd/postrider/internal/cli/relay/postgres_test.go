package relay_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestPostgresFromMigrationToRelay(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewPostgres(t), clitest.StartNATS(t)
	clitest.Fails(t, program.ExitFailed, "postrider migrate up", "status", "--store", url)
	clitest.Fails(t, program.ExitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--store", url)
	clitest.Contains(t, clitest.OK(t, "migrate", "up", "--store", url+"&partitions=3"), "up 0001_")
	clitest.OK(t, "migrate", "status", "--store", url)
	clitest.Contains(t, clitest.OK(t, "migrate", "print", "--store", url), "create table")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "3 partitions")

	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
	if n := strings.Count(clitest.OK(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json"), "\n"); n != 3 {
		t.Errorf("tail shows %d messages", n)
	}
	tail := clitest.Start(t, nil, "tail", "--store", url, "--from", "1h")
	tail.Out.Await(t.Context(), t, "order/2")

	r := clitest.Start(t, nil, "relay", "--store", url+"&notify=5ms", "--publisher", broker+"?stream=ORDERS")
	r.Err.Await(t.Context(), t, "relay works")
	clitest.Arrivals(t, broker, "ORDERS", 3)
	clitest.PublishKeys(t, url, "order/3")
	clitest.Arrivals(t, broker, "ORDERS", 4)
	tail.Out.Await(t.Context(), t, "order/3")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	tail.End(t)
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url), "not held; its partition has a backlog of 0")
	clitest.Contains(t, clitest.OK(t, "migrate", "down", "--to", "0", "--yes", "--store", url), "down 0001_")
}

func TestPostgresDeadAndHeld(t *testing.T) {
	t.Parallel()
	url := clitest.NewPostgres(t)
	clitest.OK(t, "migrate", "up", "--store", url)
	clitest.PublishKeys(t, url, "order/1", "order/1", "order/2")
	clitest.Hold(t, url, "to-nats")
	clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "2 messages")
	clitest.OK(t, "held", "dead", "order/1", "--all", "--yes", "--because", "later", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--key", "order/1", "--from", "1h", "--store", url), "later")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url), "redriven 2 dead letters")
	clitest.Fails(t, program.ExitFailed, "no such dead letter", "dead", "show", "99", "--store", url)
}

func TestPostgresThatCannotBeReached(t *testing.T) {
	t.Parallel()
	r := clitest.Run(t, "status", "--store", "postgres://nobody:secret@127.0.0.1:1/none")
	clitest.Expect(t, r, program.ExitFailed, "connect to postgres://nobody@127.0.0.1:1/none")
	if strings.Contains(r.Err, "secret") {
		t.Errorf("the error gives the password away:\n%s", r.Err)
	}
}

// TestPostgresSaysWhatToDo: an error in a URL, a server or a role includes its fix, in one line.
func TestPostgresSaysWhatToDo(t *testing.T) {
	t.Parallel()
	mine, err := url.Parse(clitest.NewPostgres(t))
	clitest.Must(t, err)
	refused := func(words string, change func(u *url.URL), args ...string) {
		t.Helper()
		u := *mine
		change(&u)
		r := clitest.Run(t, append(args, "--store", u.String())...)
		clitest.Expect(t, r, program.ExitFailed, words, args...)
		if strings.Count(r.Err, "\n") != 1 || strings.Contains(r.Err, "Secret") {
			t.Errorf("more than one line, or the password:\n%s", r.Err)
		}
	}
	refused("is the server running there, and may one connect", func(u *url.URL) { u.Host = "127.0.0.1:1" }, "status")
	refused(`; make it with CREATE DATABASE "not_there", or name another`, func(u *url.URL) { u.Path = "/not_there" }, "status")
	refused("; ", func(u *url.URL) { u.User = url.UserPassword("nobody_of_that_name", "Secret-4711") }, "status") // the rest depends on pg_hba.conf
	nologin := "cmd_" + strings.ToLower(rand.Text()[:10])
	clitest.Exec(t, mine.String(), "CREATE ROLE "+nologin+" NOLOGIN PASSWORD 'Secret-4711'")
	t.Cleanup(func() { clitest.Exec(t, mine.String(), "DROP ROLE "+nologin) })
	refused(nologin, func(u *url.URL) { u.User = url.UserPassword(nologin, "Secret-4711") }, "status")
	refused("; of the options in the URL, deliver_after_flush, notify, partitions, prefix, schema are Postrider's", func(u *url.URL) { u.RawQuery += "&colour=blue" }, "status")
	refused("make it first, as the owner of the database: create schema not_there", func(u *url.URL) {
		query := u.Query()
		query.Set("schema", "not_there")
		u.RawQuery = query.Encode()
	}, "migrate", "up")
}
