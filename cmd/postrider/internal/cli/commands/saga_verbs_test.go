package commands_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

type sagaStore interface {
	store.Relay
	store.Outbox[*sql.Tx]
	saga.Store[*sql.Tx]
}

type parcel struct {
	Address string `json:"address"`
	Number  string `json:"number,omitempty"`
}

// shop is an engine whose instances wait for a review and then for a participant that does not exist.
type shop struct {
	t       *testing.T
	url     string
	store   sagaStore
	box     *outbox.Outbox[*sql.Tx]
	parcels *saga.Saga[*sql.Tx, parcel]
	stop    func()
}

// parcels is version 1 of the saga.
func parcels() saga.Definition[parcel] {
	ship := saga.DefineStep[parcel, parcel]("parcel.ship").WithTopic("parcels")
	return saga.Definition[parcel]{Name: "parcels", Version: 1, Steps: []saga.Step[parcel]{
		saga.Await[parcel, parcel]{Name: "review", Signal: postrider.Define[parcel]("parcel.reviewed"), Timeout: saga.NoTimeout,
			Received: func(p *parcel, r parcel) { p.Number = r.Number }},
		saga.Ask[parcel]{Name: "release", OnlyIf: func(p parcel) bool { return p.Number == "" }, Timeout: saga.NoTimeout,
			Question: func(parcel) string { return "Release it?" }, Options: []string{"yes", "no"}, Roles: []string{"warehouse"}},
		saga.Request[parcel, parcel, parcel]{Name: "ship", Step: ship, Command: func(p parcel) parcel { return p }},
	}}
}

func newShop(t *testing.T, contracts ...saga.Contract) *shop {
	t.Helper()
	s := &shop{t: t, url: clitest.NewOutbox(t)}
	s.store = clitest.OpenOutbox(t, s.url).Transactions.(sagaStore)
	var err error
	s.box, err = outbox.New[*sql.Tx](s.store, outbox.Config{Source: "shop"})
	clitest.Must(t, err)
	quiet := slog.New(slog.DiscardHandler)
	e, err := saga.New[*sql.Tx](s.store, s.box, saga.Config{Name: "shop", Logger: quiet})
	clitest.Must(t, err)
	s.parcels, err = saga.Register(e, parcels())
	clitest.Must(t, err)
	for _, c := range contracts {
		clitest.Must(t, saga.Track(e, c))
	}
	r, err := relay.New(s.store, relay.Config{Name: "engine", Topics: append(e.Topics(), e.Topic()), Logger: quiet})
	clitest.Must(t, err)
	clitest.Must(t, e.Relay(r))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.stop = func() {
		cancel()
		clitest.Must(t, <-done)
		done <- nil
	}
	t.Cleanup(s.stop)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // plans need the definition, which the engine reports
		reported, err := s.store.SagaDefinitions(t.Context())
		clitest.Must(t, err)
		if len(reported) == 1+len(contracts) {
			return s
		}
		if time.Since(begun) > clitest.Patience {
			t.Fatalf("the engine has reported %d definitions", len(reported))
		}
	}
}

func (s *shop) start(id string) {
	s.t.Helper()
	_, err := s.box.InTx(s.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.parcels.Start(ctx, tx, parcel{Address: "Main Street"}, saga.ID(id))
		return err
	})
	clitest.Must(s.t, err)
}

// ok runs a decision about an instance and returns its output.
func (s *shop) ok(args ...string) string {
	s.t.Helper()
	return clitest.OK(s.t, append(append([]string{"saga"}, args...), "--because", "test", "--by", "ann", "--wait", "3m", "--store", s.url)...)
}

// is checks an instance.
func (s *shop) is(id string, want saga.Status, waiting ...string) saga.Result[parcel] {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.parcels.Get(s.t.Context(), id)
		clitest.Must(s.t, err)
		if r.Status == want && (len(waiting) == 0 || len(r.Waiting) == 1 && r.Waiting[0] == waiting[0]) {
			return r
		}
		if time.Since(begun) > clitest.Patience {
			s.t.Fatalf("instance %s is %s and waits for %v, want %s and %v", id, r.Status, r.Waiting, want, waiting)
		}
	}
}

// TestVerbs: operators' decisions are planned, asked for, carried out by the engine and recorded.
func TestVerbs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.start("42")
	plan := s.ok("done", "42", "--step", "review", "--dry-run")
	clitest.Contains(t, plan, "instance 42 at revision 1: running, then running", "step.done review", "continues at step release, which depends on the data")
	s.is("42", saga.Running, "review")
	clitest.Contains(t, s.ok("done", "42", "--step", "review", "--patch", `{"address": "Side Street"}`), "done of instance 42 is done, in revision 2", "saga show 42")
	s.is("42", saga.Running, "release")
	s.ok("edit", "42", "--patch", `{"address": "Long Street"}`)
	clitest.Contains(t, clitest.OK(t, "saga", "show", "42", "--at", "2", "--store", s.url), `"address":"Side Street"`)
	clitest.Contains(t, clitest.OK(t, "saga", "show", "42", "--at", "3", "--store", s.url), `"address":"Long Street"`)
	clitest.Fails(t, program.ExitFailed, "revision 99 of instance 42", "saga", "show", "42", "--at", "99", "--store", s.url)
	clitest.Fails(t, program.ExitFailed, "revision 0 of instance 42", "saga", "show", "42", "--at", "0", "--store", s.url)
	s.ok("answer", "42", "--step", "release", "--option", "yes")
	if r := s.is("42", saga.Running, "ship"); r.Data.Address != "Long Street" {
		t.Errorf("data %+v", r.Data)
	}
	clitest.Contains(t, s.ok("done", "42", "--step", "ship", "--dry-run"), "sends the undo of step ship: parcel.ship.undo to topic parcels", "obligations open afterwards: ship")
	s.ok("pause", "42")
	refused := clitest.Run(t, "saga", "skip", "42", "--step", "ship", "--dry-run", "--store", s.url)
	clitest.Contains(t, refused.Out, "it would be refused: the instance is paused")
	clitest.Expect(t, refused, program.ExitNo, "")
	clitest.Fails(t, program.ExitFailed, "skip is refused: the instance is paused", "saga", "skip", "42", "--step", "ship", "--because", "test", "--store", s.url)
	s.ok("resume", "42")
	clitest.Fails(t, program.ExitFailed, "the instance has moved on from revision 1", "saga", "cancel", "42", "--rev", "1", "--because", "test", "--store", s.url)
	s.ok("cancel", "42")
	s.is("42", saga.Compensating, "ship")
	s.ok("undone", "42", "--step", "ship")
	s.is("42", saga.Compensated)
	show := clitest.OK(t, "saga", "show", "42", "--store", s.url)
	clitest.Contains(t, show, "operator.done review (test), step.done review", "by ann", "operator.cancel (test)", "compensated")
	clitest.Lacks(t, show, "no running process")
	clitest.Contains(t, clitest.OK(t, "saga", "show", "42", "--mermaid", "--store", s.url), "flowchart TD", `ship<br>undone`, `review<br>done`)
	clitest.Fails(t, program.ExitFailed, "cancel is refused: the instance is compensated", "saga", "cancel", "42", "--because", "test", "--store", s.url)
	clitest.Fails(t, program.ExitUsage, "because", "saga", "cancel", "42", "--store", s.url)
	clitest.Fails(t, program.ExitFailed, "no such instance", "saga", "cancel", "43", "--dry-run", "--store", s.url) // which needs no reason
	clitest.Fails(t, program.ExitUsage, "--patch is not a JSON object", "saga", "edit", "42", "--patch", "[]", "--because", "test", "--store", s.url)
	clitest.Fails(t, program.ExitFailed, "no such instance", "saga", "cancel", "43", "--because", "test", "--store", s.url)
}

// TestSignalAndMissingVersion: a signal reaches its step; without a running process, lists say that a version is missing and decisions
// wait.
func TestSignalAndMissingVersion(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.start("42")
	clitest.OK(t, "saga", "signal", "42", "--type", "parcel.reviewed", "--data", `{"number": "P-1"}`, "--store", s.url)
	if r := s.is("42", saga.Running, "ship"); r.Data.Number != "P-1" {
		t.Errorf("data %+v", r.Data)
	}
	clitest.Lacks(t, clitest.Run(t, "saga", "list", "--store", s.url).Err, "no running process")
	clitest.Contains(t, clitest.OK(t, "__complete", "saga", "done", "42", "--store", s.url, "--step", ""), "ship")
	s.stop()
	clitest.Contains(t, clitest.Run(t, "saga", "list", "--store", s.url).Err, "no running process has parcels version 1, so 1 instance waits for one")
	clitest.Contains(t, clitest.OK(t, "saga", "list", "--json", "--store", s.url), `"definition_missing":true`)
	clitest.Contains(t, clitest.OK(t, "saga", "show", "42", "--store", s.url), "no running process has version 1")
	clitest.Fails(t, program.ExitFailed, "no engine has decided within 10ms", "saga", "abandon", "42", "--because", "test", "--wait", "10ms", "--store", s.url)
}

// TestDiff: what becomes of running instances with builds that differ.
func TestDiff(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.start("42")
	s.start("43")
	clitest.OK(t, "saga", "signal", "43", "--type", "parcel.reviewed", "--data", `{"number": "P-1"}`, "--store", s.url)
	s.is("43", saga.Running, "ship") // its command is sent, so it may have to be undone
	file := filepath.Join(t.TempDir(), "sagas.json")
	build := func(definitions ...saga.Definition[parcel]) {
		t.Helper()
		var graphs []byte
		for _, d := range definitions {
			graph, _, err := d.Graph()
			clitest.Must(t, err)
			graphs = append(graphs, graph...)
		}
		clitest.Must(t, os.WriteFile(file, graphs, 0o600))
	}
	diff := func() clitest.Result { return clitest.Run(t, "saga", "diff", "--new", file, "--store", s.url) }
	patient, second, cut := parcels(), parcels(), parcels()
	patient.Deadline = time.Hour
	second.Version, cut.Version, cut.Steps = 2, 2, cut.Steps[:1]
	for _, tt := range []struct {
		build []saga.Definition[parcel]
		code  int
		want  []string
	}{
		{[]saga.Definition[parcel]{parcels()}, 0, []string{"parcels", "same", "42 43"}},
		{[]saga.Definition[parcel]{patient}, 0, []string{"policy", "42 43"}},
		{[]saga.Definition[parcel]{second, parcels()}, 0, []string{"pinned", "42 43"}},
		{[]saga.Definition[parcel]{second}, program.ExitNo, []string{"would stop", "42 43", "the build does not have version 1"}},
		{[]saga.Definition[parcel]{cut}, program.ExitNo, []string{"would stop", "unsafe: compensation missing", "version 2 has no undo for step ship"}},
		{nil, program.ExitNo, []string{"would stop", "the build does not have the saga"}},
	} {
		build(tt.build...)
		result := diff()
		if result.Code != tt.code {
			t.Errorf("exit code %d, want %d: %s %s", result.Code, tt.code, result.Out, result.Err)
		}
		clitest.Contains(t, result.Out, tt.want...)
	}
	clitest.Contains(t, clitest.Run(t, "saga", "diff", "--new", file, "--json", "--store", s.url).Out, `"class":"would stop"`, `"oldest_seconds":`)
	clitest.Must(t, os.WriteFile(file, []byte("{"), 0o600))
	clitest.Fails(t, program.ExitFailed, "read the graphs of the build", "saga", "diff", "--new", file, "--store", s.url)
}

// TestRecordHidesTheID: the ID of an instance is a key to those who read the record, its run is none.
func TestRecordHidesTheID(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.start("order-17")
	s.is("order-17", saga.Running, "review")
	b := clitest.OpenOutbox(t, s.url)
	in, err := b.ShowSaga(t.Context(), "order-17")
	clitest.Must(t, err)
	s.ok("pause", "order-17")
	s.ok("resume", in.Run)
	clitest.OK(t, "saga", "signal", "order-17", "--type", "parcel.reviewed", "--store", s.url)
	boss := admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin}
	for shown, want := range map[admin.Role][]string{
		"":          {"signal parcel.reviewed of saga hidden ", "resume of saga " + in.Run + " /sagas/" + in.Run, "pause of saga hidden "},
		admin.Admin: {"signal parcel.reviewed of saga order-17 /sagas/order-17", "resume of saga " + in.Run + " /sagas/" + in.Run, "pause of saga order-17 /sagas/order-17"},
	} {
		found, _, err := admin.New(b, admin.Config{Show: []admin.Rule{{Type: "*", Keys: shown}}}).Activity(t.Context(), boss, "", 10)
		clitest.Must(t, err)
		var got []string
		for _, e := range found {
			got = append(got, e.On+" "+e.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("keys shown to %q: %q", shown, got)
		}
	}
}
