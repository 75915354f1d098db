package commands_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// entries are those of the audit, oldest first.
func entries(t *testing.T, url string) (out []admin.Entry) {
	t.Helper()
	for line := range strings.Lines(clitest.OK(t, "audit", "--limit", "0", "--json", "--store", url)) {
		var e admin.Entry
		clitest.Must(t, json.Unmarshal([]byte(line), &e))
		out = append(out, e)
	}
	slices.Reverse(out)
	return out
}

// verb is a command that changes something, without --store.
type verb struct {
	args []string
	// action and on are those of its entry; held: it needs a held key instead of dead letters.
	action admin.Action
	on     string
	held   bool
}

var verbs = []verb{
	{args: []string{"dead", "redrive", "1", "--because", "why"}, action: "RedriveDead", on: "dead letter 1"},
	{args: []string{"dead", "redrive", "--relay", "to-nats", "--yes", "--because", "why"}, action: "RedriveDead", on: `redrive 1: dead letters that match {"relay":"to-nats"}`},
	{args: []string{"redrive", "start", "--all", "--yes", "--detach", "--because", "why"}, action: "RedriveDead", on: "redrive 1: all open dead letters"},
	{args: []string{"dead", "discard", "1", "--because", "why"}, action: "DiscardDead", on: "dead letter 1"},
	{args: []string{"dead", "discard", "--all", "--because", "why", "--yes"}, action: "DiscardDead", on: "all open dead letters"},
	{args: []string{"dead", "edit", "1", "--header", "a=b", "--because", "why", "--yes"}, action: "EditDead", on: "dead letter 1"},
	{args: []string{"outbox", "remove", "to-nats", "--discard", "--because", "why", "--yes"}, action: "RemoveRelay", on: "to-nats"},
	{args: []string{"erase", "messages", "--key", "order/1", "--because", "why", "--yes"}, action: "Erase", on: "the messages of a key"},
	{args: []string{"legal-hold", "place", "--because", "why"}, action: "PlaceHold", on: "a legal hold"},
	{args: []string{"relay", "pause", "to-nats", "--because", "why"}, action: "PauseRelay", on: "to-nats"},
	{args: []string{"held", "retry", "order/1"}, action: "Decide", on: "Retry: key order/1 of to-nats", held: true},
	{args: []string{"held", "skip", "order/1", "--because", "why"}, action: "Decide", on: "Skip: key order/1 of to-nats", held: true},
	{args: []string{"held", "dead", "order/1", "--all", "--yes", "--because", "why"}, action: "Decide", on: "Dead-letter all: key order/1 of to-nats", held: true},
}

// TestVerbsAreOnRecord: each command that changes something writes an entry: who, what, on what and why. Without the entry, it changes
// nothing.
func TestVerbsAreOnRecord(t *testing.T) {
	t.Parallel()
	for i, v := range verbs {
		t.Run(fmt.Sprint(i, "-", v.args[0]), func(t *testing.T) {
			t.Parallel()
			url := clitest.WithDead(t)
			if v.held {
				url = clitest.WithHeld(t)
			}
			before := content(t, url)
			b := clitest.OpenOutbox(t, url)
			_, err := b.DB.Exec(`CREATE TRIGGER refused BEFORE INSERT ON postrider_audit BEGIN SELECT RAISE(ABORT, 'no entry'); END`)
			clitest.Must(t, err)
			args := append(slices.Clone(v.args), "--store", url)
			if r := clitest.Run(t, args...); r.Code != program.ExitFailed || !strings.Contains(r.Err, "no entry") {
				t.Errorf("without an entry: code %d, %s%s", r.Code, r.Out, r.Err)
			}
			if after := content(t, url); after != before {
				t.Errorf("without an entry, it has changed\n%s\nto\n%s", before, after)
			}
			_, err = b.DB.Exec("DROP TRIGGER refused")
			clitest.Must(t, err)
			clitest.OK(t, args...)
			found := entries(t, url)
			if len(found) != 1 {
				t.Fatalf("on record: %+v", found)
			}
			e := found[0]
			if e.Action != v.action || e.On != v.on || e.Via != admin.ViaCLI || e.By == "" || e.Subject == "" || e.At.IsZero() || e.Result != admin.Done ||
				(e.Reason == "why") != slices.Contains(v.args, "why") {
				t.Errorf("on record: %+v", e)
			}
		})
	}
}

// TestRemovalIsOnRecord: the removal of a relay has two steps, and each is on record, also when it fails.
func TestRemovalIsOnRecord(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	var hold struct{ ID string }
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "legal-hold", "place", "--because", "case 17", "--json", "--store", url)), &hold))
	remove := []string{"outbox", "remove", "to-nats", "--discard", "--everything", "--yes", "--because", "rebuilt", "--store", url}
	clitest.Fails(t, program.ExitFailed, "case 17", remove...)
	clitest.OK(t, "legal-hold", "release", hold.ID, "--because", "closed", "--yes", "--store", url)
	clitest.OK(t, remove...)
	var got []string
	for _, e := range entries(t, url) {
		if e.Action == "RemoveRelay" {
			got = append(got, fmt.Sprint(e.Result, " ", e.On, " ", e.Reason))
		}
	}
	// The second command finds no relay to remove, and goes on.
	want := []string{"done to-nats rebuilt", "failed what to-nats has processed rebuilt", "failed to-nats rebuilt", "done what to-nats has processed rebuilt"}
	if !slices.Equal(got, want) {
		t.Errorf("on record: %q", got)
	}
}

// content is what the verbs change, as text.
func content(t *testing.T, url string) string {
	t.Helper()
	o := clitest.OpenOutbox(t, url)
	var out []any
	for l, err := range deadletter.New(o).ListDead(t.Context(), store.DeadFilter{State: store.DeadAny}, 0, 0) {
		clitest.Must(t, err)
		out = append(out, l)
	}
	for r, err := range deadletter.New(o).ListRedrives(t.Context(), "") {
		clitest.Must(t, err)
		out = append(out, r)
	}
	for _, table := range []string{"decisions", "parked", "held", "relays", "documents"} {
		var n int
		if err := o.DB.QueryRow("SELECT count(*) FROM postrider_" + table).Scan(&n); err == nil {
			out = append(out, table, n)
		}
	}
	text, err := json.Marshal(out)
	clitest.Must(t, err)
	return string(text)
}

// TestMoreVerbsAreOnRecord: those that need what others did before; and what fails is on record too.
func TestMoreVerbsAreOnRecord(t *testing.T) {
	t.Parallel()
	url, exported := clitest.NewOutbox(t), clitest.WithDead(t)
	file := clitest.WriteFile(t, clitest.OK(t, "dead", "export", "--store", exported))
	clitest.OK(t, "dead", "import", file, "--store", url)
	clitest.OK(t, "redrive", "start", "1", "--detach", "--by", "eva", "--store", url)
	clitest.OK(t, "redrive", "cancel", "1", "--because", "mistake", "--store", url)
	clitest.Fails(t, program.ExitFailed, "redrive has ended", "redrive", "cancel", "1", "--store", url)
	var hold struct{ ID string }
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "legal-hold", "place", "--because", "case 17", "--json", "--store", url)), &hold))
	clitest.OK(t, "legal-hold", "release", hold.ID, "--because", "closed", "--yes", "--store", url)
	var got []string
	for _, e := range entries(t, url) {
		got = append(got, strings.TrimSpace(string(e.Action)+" "+string(e.Result)+" "+e.Reason))
	}
	want := []string{"ImportDead done", "RedriveDead done", "CancelRedrive done mistake", "CancelRedrive failed", "PlaceHold done case 17", "ReleaseHold done closed"}
	if !slices.Equal(got, want) {
		t.Errorf("on record: %q", got)
	}
	clitest.Contains(t, clitest.OK(t, "audit", "--store", url), "THROUGH", "cli", "eva", "redrive 1: dead letter 1", "failed")
	if n := strings.Count(clitest.OK(t, "audit", "--limit", "2", "--json", "--store", url), "\n"); n != 2 {
		t.Errorf("%d entries with --limit 2", n)
	}
	clitest.Contains(t, clitest.Run(t, "audit", "--store", clitest.NewOutbox(t)).Err, "no actions")
	clitest.Fails(t, program.ExitUsage, "--limit must not be negative", "audit", "--limit", "-1", "--store", url)
}

// TestTableFits: the table fits 100 columns, also with the longest names of actions, people and what they are about; JSON has all of it.
func TestTableFits(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	service := admin.New(clitest.OpenOutbox(t, url), admin.Config{})
	anna := admin.Principal{Name: strings.Repeat("anna", 30), Subject: "anna", Via: admin.ViaBrowser, Role: admin.Viewer}
	if err := service.ContinueRedrive(t.Context(), anna, 1_000_000_000_000, strings.Repeat("why ", 60)); !errors.Is(err, admin.ErrForbidden) {
		t.Fatal(err)
	}
	unbroken := strings.Repeat("order.", 20)
	clitest.OK(t, "dead", "redrive", "--relay", "to-nats", "--because", strings.Repeat("ä", 200), "--yes", "--store", url)
	clitest.Fails(t, program.ExitFailed, "", "redrive", "cancel", "7", "--because", unbroken, "--store", url)
	out := clitest.OK(t, "audit", "--store", url)
	clitest.Contains(t, out, "ContinueRedrive", "refused", "redrive 1", "annaannaann…", "3      done")
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if found := entries(t, url); found[0].By != anna.Name || found[1].Reason != strings.Repeat("ä", 200) || found[2].Reason != unbroken {
		t.Errorf("in JSON: %+v", found)
	}
}
