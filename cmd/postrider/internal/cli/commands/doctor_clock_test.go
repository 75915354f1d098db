package commands_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/servertest"
)

// TestDoctorFindsClocksThatDisagree on a database of its own, whose clock is set by replacing its function.
func TestDoctorFindsClocksThatDisagree(t *testing.T) {
	t.Parallel()
	server := servertest.Get(t, servertest.Postgres)
	name := "clock_" + strings.ToLower(rand.Text())
	clitest.Exec(t, server, "create database "+name)
	t.Cleanup(func() { clitest.Exec(t, server, "drop database "+name+" with (force)") })
	u, err := url.Parse(server)
	clitest.Must(t, err)
	u.Path = "/" + name
	clitest.OK(t, "migrate", "up", "--store", u.String())
	passes(t, u.String(), "db.clock")
	const replace = "create or replace function pg_catalog.clock_timestamp() returns timestamptz volatile strict parallel safe language "
	for ahead, want := range map[string]struct {
		level doctor.Level
		words string
	}{
		"45 seconds":  {doctor.Fault, " s behind the clock of the database."},
		"-15 seconds": {doctor.Warning, " s ahead of the clock of the database."},
	} {
		clitest.Exec(t, u.String(), replace+"sql as $$select pg_catalog.statement_timestamp() + interval '"+ahead+"'$$")
		if f := found(t, u.String(), "db.clock"); f.Level != want.level || !strings.HasSuffix(f.Message, want.words) {
			t.Errorf("%s: %+v", ahead, f)
		}
	}
	clitest.Exec(t, u.String(), replace+"internal as 'clock_timestamp'")
	passes(t, u.String(), "db.clock")
}
