package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// The test program is also the other processes: roleVariable says which role it has, fileVariable with which database.
const (
	roleVariable = "POSTRIDER_SQLITE_TEST_ROLE"
	fileVariable = "POSTRIDER_SQLITE_TEST_FILE"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, os.Getenv(fileVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(role, path string) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		return err
	}
	switch role {
	case "write":
		return writeAndWait(s)
	case "relay":
		return deliver(s, path+".delivered")
	}
	return fmt.Errorf("no role %q", role)
}

// writeAndWait writes messages, prints that it has, and keeps its transaction open until it is killed.
func writeAndWait(s *sqlite.Store) error {
	tx, err := s.Begin(context.Background())
	if err != nil {
		return err
	}
	if err := s.Insert(context.Background(), tx, benchMessages(500)); err != nil {
		return err
	}
	fmt.Println("written")
	_, err = io.Copy(io.Discard, os.Stdin) // the parent never closes it
	return err
}

// deliver runs a relay that appends a line for each delivery to a file shared by all processes.
func deliver(s *sqlite.Store, journal string) error {
	out, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	r, err := relay.New(s, relay.Config{
		Name: "r", LeaseTTL: time.Second, PollMax: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = r.HandleFunc("order.placed", func(_ context.Context, m *postrider.Message) error {
		_, err := fmt.Fprintf(out, "%d %s %d\n", os.Getpid(), m.Key, m.Sequence)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("running")
	return r.Run(context.Background())
}

// start starts the test program in a role and waits for its first line.
func start(t *testing.T, f file, role string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+string(f))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the %s process said %q and then %v", role, line, err)
	}
	return cmd
}

// kill ends a process at once, like kill -9.
func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// TestProcessKilledInATransaction: its uncommitted writes and its lock are gone, and committed messages are there.
func TestProcessKilledInATransaction(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	s := newStore(t, f.migrated(t, sqlite.Config{}), sqlite.Config{})
	publish(t.Context(), t, s, benchMessages(3)...)
	leases := lease(t, s, "all", store.Owner{ID: "all"})
	cmd := start(t, f, "write")
	if got := fetchUnder(t, s, leases); len(got) != 3 {
		t.Errorf("fetched %d while another process writes, want 3", len(got))
	}
	kill(cmd)
	publish(t.Context(), t, s, benchMessages(4)...)
	for name, s := range map[string]*sqlite.Store{"a store that was open": s, "another": newStore(t, f.open(t, ""), sqlite.Config{})} {
		if got := fetchAll(t, s); len(got) != 7 {
			t.Errorf("%s fetched %d, want the 7 committed", name, len(got))
		}
	}
	var check string
	if err := f.open(t, "").QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&check); err != nil || check != "ok" {
		t.Errorf("integrity check: %s, %v", check, err)
	}
}

// TestRelaysInTwoProcesses: two processes share the partitions of one file by lease; one is killed, the other takes over.
// Nothing is lost, and each key arrives in order; what the killed one had not recorded is redelivered.
func TestRelaysInTwoProcesses(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 50
	f := newFile(t)
	s := newStore(t, f.migrated(t, sqlite.Config{}), sqlite.Config{})
	a, b := start(t, f, "relay"), start(t, f, "relay")
	send := func(rounds int) {
		for range rounds {
			publish(t.Context(), t, s, benchMessages(keys)...)
		}
	}
	send(each / 2)
	journal := func() map[string][]string { return readJournal(t, filepath.Clean(string(f)+".delivered")) }
	waitFor(t, "both processes to deliver", func() bool {
		send(1)
		by := journal()["by"]
		return contains(by, a.Process.Pid) && contains(by, b.Process.Pid)
	})
	kill(a)
	send(each / 2)
	waitFor(t, "everything to be settled", func() bool {
		st, err := s.Status(t.Context())
		return err == nil && len(st.Relays) == 1 && st.Relays[0].Backlog.N == 0
	})
	checkOrder(t, journal(), fetchAll(t, s))
}

func contains(pids []string, pid int) bool {
	for _, p := range pids {
		if p == fmt.Sprint(pid) {
			return true
		}
	}
	return false
}

// readJournal returns the delivered sequences by key, in order, and the delivering processes under "by".
func readJournal(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		parts := strings.Fields(line)
		if len(parts) != 3 || !strings.HasSuffix(line, "\n") {
			continue // a line that is still being written
		}
		out["by"] = append(out["by"], parts[0])
		out[parts[1]] = append(out[parts[1]], parts[2])
	}
	return out
}

// checkOrder: without duplicates, each key's deliveries equal its messages in the log.
func checkOrder(t *testing.T, delivered map[string][]string, log []*postrider.Message) {
	t.Helper()
	want := make(map[string][]string)
	for _, m := range log {
		want[m.Key] = append(want[m.Key], fmt.Sprint(m.Sequence))
	}
	again := 0
	for key, sequences := range want {
		var first []string
		seen := make(map[string]bool)
		for _, seq := range delivered[key] {
			if seen[seq] {
				again++
				continue
			}
			seen[seq] = true
			first = append(first, seq)
		}
		if strings.Join(first, " ") != strings.Join(sequences, " ") {
			t.Errorf("key %s: delivered %v, committed %v", key, first, sequences)
		}
	}
	t.Logf("%d messages, %d delivered again", len(log), again)
}

// waitFor waits for other processes.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited five minutes for %s", what)
		}
		<-tick.C
	}
}
