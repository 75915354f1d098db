package operations_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/itest/process"
)

// TestDoctorWhileItsDatabaseStops: a real server is stopped (SIGSTOP, all of its processes) in the middle of a check. The doctor ends with
// its time and names each check that got no answer and each that it never reached.
func TestDoctorWhileItsDatabaseStops(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "PostgreSQL.") //nolint:usetesting // the folder of a test belongs to root, and PostgreSQL runs as another user
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := process.StartPostgres(t.Context(), dir)
	must(t, err)
	stopped := []int{server.PID()}
	t.Cleanup(func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if out, err := exec.CommandContext(t.Context(), binary, "migrate", "up", "--store", server.URL).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	must(t, err)
	tx, err := conn.Begin(t.Context())
	must(t, err)
	// A check that reads these tables waits for a lock: the moment at which the server stops. What opening the outbox reads is left alone.
	_, err = tx.Exec(t.Context(), `do $$ declare name text; begin
		for name in select tablename from pg_tables where tablename like 'postrider\_%' and tablename ~ '_(relays|held|parked|dead|attempts|decisions)$' loop
			execute format('lock table %I in access exclusive mode', name);
		end loop; end $$`)
	must(t, err)

	const limit = 20 * time.Second
	cmd := exec.CommandContext(t.Context(), binary, "doctor", "--json", "--timeout", limit.String(), "--store", server.URL)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	began := time.Now()
	must(t, cmd.Start())
	var pids []int
	for deadline := time.Now().Add(patience); len(pids) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no check waits for the lock")
		}
		must(t, tx.QueryRow(t.Context(), `select array_agg(pid) from pg_stat_activity where pid <> pg_backend_pid()
			and exists (select from pg_locks where not granted)`).Scan(&pids))
	}
	stopped = append(stopped, pids...)
	for _, pid := range stopped {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	err = cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if took := time.Since(began); !ok || exit.ExitCode() != 1 || took > limit+time.Minute {
		t.Errorf("%v after %s", err, took)
	}
	var r doctor.Report
	must(t, json.Unmarshal([]byte(out.String()), &r))
	midway(t, r)
}

// midway checks a report of a server that stopped: first checks that passed, then some without an answer, then those never reached.
func midway(t *testing.T, r doctor.Report) {
	t.Helper()
	var passed, silent, unreached int
	for _, result := range r.Results {
		switch {
		case result.Outcome == doctor.Passed && silent == 0:
			passed++
		case result.Outcome == doctor.CouldNotCheck && result.Reason == "no answer in time" && unreached == 0:
			silent++
		case result.Outcome == doctor.CouldNotCheck && result.Reason == "not reached within 20s":
			unreached++
		default:
			t.Errorf("%s of a stopped server: %s, %s", result.Check, result.Outcome, result.Reason)
		}
	}
	if passed == 0 || silent == 0 || unreached == 0 {
		t.Errorf("%d passed, %d had no answer, %d were not reached", passed, silent, unreached)
	}
}
