package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

var update = flag.Bool("update", false, "write the golden files")

type (
	request  = saga.Request[Order, StockOrder, Reservation]
	local    = saga.Local[Order, *memory.Tx]
	choose   = saga.Choose[Order]
	parallel = saga.Parallel[Order]
	await    = saga.Await[Order, Reservation]
	ask      = saga.Ask[Order]
	each     = saga.Each[Order, Order]
	child    = saga.Child[Order, Order]
	steps    = []saga.Step[Order]
)

var (
	ok       = request{Name: "ok", Step: ReserveStock, Command: stockOf}
	pivot    = request{Name: "pivot", Step: ReserveStock, Command: stockOf, Pivot: true}
	reviewed = postrider.Define[Reservation]("order.reviewed")
)

func stockOf(o Order) StockOrder { return StockOrder{o.SKU, o.Quantity} }

func itself(o Order) []Order { return []Order{o} }

func idOf(o Order) string { return o.ID }

func same(o Order) Order { return o }

func nothing(context.Context, *memory.Tx, *Order) error { return nil }

// TestValidate: each fault of a definition is named, with its step, and all are found at once.
//
// size: a table of cases.
func TestValidate(t *testing.T) {
	t.Parallel()
	named := func(name string) request { r := ok; r.Name = name; return r }
	tests := map[string]struct {
		steps steps
		want  []string
	}{
		"fine": {steps: steps{
			ok, choose{Name: "c", Cases: []saga.Case[Order]{{Name: "a", If: func(Order) bool { return true }, Steps: steps{pivot}}, {Name: "b", Steps: steps{pivot}}}},
			local{Name: "after", Do: nothing},
		}},
		"no steps":      {want: []string{"there are no steps"}},
		"nil step":      {steps: steps{nil}, want: []string{"a step is nil"}},
		"bad name":      {steps: steps{named("Reserve It")}, want: []string{`step Reserve It: the name "Reserve It" must have`}},
		"reserved name": {steps: steps{named("end")}, want: []string{`must not be "end"`}},
		"two of a name": {steps: steps{ok, ok}, want: []string{"step ok: there are several steps of this name"}},
		"no command":    {steps: steps{request{Name: "r", Step: ReserveStock}}, want: []string{"step r: Command is nil"}},
		"no step definition": {
			steps: steps{request{Name: "r", Command: stockOf}}, want: []string{"step r: define the step with DefineStep", "message type"}},
		"bad step definition": {
			steps: steps{request{Name: "r", Step: ReserveStock.WithSchemaVersion(-1), Command: stockOf}}, want: []string{"schema_version"}},
		"request without timeout": {
			steps: steps{request{Name: "r", Step: ReserveStock, Command: stockOf, Timeout: saga.NoTimeout}}, want: []string{"a request needs a timeout"}},
		"negative numbers": {
			steps: steps{request{Name: "r", Step: ReserveStock, Command: stockOf, Timeout: -5, Attempts: -1}},
			want:  []string{"Timeout is -5ns", "Attempts is -1"}},
		"local without do":   {steps: steps{local{Name: "l", NoUndo: true}}, want: []string{"step l: Do is nil"}},
		"local without undo": {steps: steps{local{Name: "l", Do: nothing}, pivot}, want: []string{"step l: has no Undo and comes before the pivot"}},
		"local with undo and without": {
			steps: steps{local{Name: "l", Do: nothing, Undo: nothing, NoUndo: true}}, want: []string{"has an Undo and is marked NoUndo"}},
		"await without timeout": {steps: steps{await{Name: "a", Signal: reviewed}}, want: []string{"step a: an Await needs a Timeout"}},
		"two awaits of a signal": {
			steps: steps{await{Name: "a", Signal: reviewed, Timeout: 1}, await{Name: "b", Signal: reviewed, Timeout: 1}},
			want:  []string{"step b: step a awaits order.reviewed too"}},
		"ask without anything": {
			steps: steps{ask{Name: "a", Roles: []string{"finance", ""}}}, want: []string{"an Ask needs a Timeout", "a role is empty", "Question is nil", "Options are the answers"}},
		"no cases": {steps: steps{choose{Name: "c"}}, want: []string{"step c: there are no cases"}},
		"otherwise first": {
			steps: steps{choose{Name: "c", Cases: []saga.Case[Order]{{Name: "a"}, {Name: "a"}}}},
			want:  []string{"case a has no If", `case 2: the name "a" must be unique`}},
		"parallel of one": {steps: steps{parallel{Name: "p", Steps: steps{ok}}}, want: []string{"step p: a Parallel needs at least 2 steps, has 1"}},
		"pivot in parallel": {
			steps: steps{parallel{Name: "p", Steps: steps{ok, pivot}}}, want: []string{"step p/pivot: a pivot cannot be inside a Parallel"}},
		"each without anything": {steps: steps{each{Name: "e"}}, want: []string{"step e: Items or ID is nil", "step e: there are no steps"}},
		"pivot and await in an each": {
			steps: steps{each{Name: "e", Items: itself, ID: idOf, Window: -1, Steps: steps{pivot, await{Name: "a", Signal: reviewed, Timeout: 1}}}},
			want:  []string{"step e/pivot: a pivot cannot be inside", "step e/a: an Await cannot be inside an Each", "step e: Window is -1"}},
		"local without undo in an each": {
			steps: steps{each{Name: "e", Items: itself, ID: idOf, Steps: steps{local{Name: "l", Do: nothing}}}}, want: []string{"step e/l: has no Undo"}},
		"each in an each": {
			steps: steps{each{Name: "e", Items: itself, ID: idOf, Steps: steps{each{Name: "e", Items: itself, ID: idOf, Steps: steps{
				each{Name: "e", Items: itself, ID: idOf, Steps: steps{ok}}}}}}}, want: []string{"step e/e/e/ok: the path has up to 206 bytes"}},
		"child without anything": {steps: steps{child{Name: "c"}}, want: []string{"step c: Data is nil", `saga  v0: the name ""`, "Saga is not a definition"}},
		"child with a pivot": {
			steps: steps{child{Name: "c", Saga: saga.Definition[Order]{Name: "inner", Version: 1, Steps: steps{pivot}}, Data: same}, ok},
			want:  []string{"step c: saga inner has a pivot, so it may be impossible to undo"}},
		"child with a pivot as the pivot, and after it": {steps: steps{
			child{Name: "c", Saga: saga.Definition[Order]{Name: "inner", Version: 1, Steps: steps{pivot}}, Data: same, Pivot: true},
			child{Name: "d", Saga: saga.Definition[Order]{Name: "inner", Version: 1, Steps: steps{pivot}}, Data: same}}},
		"two pivots": {
			steps: steps{pivot, request{Name: "r", Step: ReserveStock, Command: stockOf, Pivot: true}}, want: []string{"step r: is a second pivot"}},
		"pivot after a case with a pivot": {
			steps: steps{choose{Name: "c", Cases: []saga.Case[Order]{{Name: "a", Steps: steps{pivot}}}}, pivot}, want: []string{"step pivot: is a second pivot"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := saga.Definition[Order]{Name: "orders", Version: 1, Steps: tt.steps}.Validate()
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
	err := saga.Definition[Order]{Name: "Orders", Deadline: -1, Steps: steps{ok}}.Validate()
	for _, want := range []string{`the name "Orders"`, "Version is 0", "Deadline is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// everything has every kind of step.
func everything() saga.Definition[Order] {
	charge := saga.Request[Order, Charge, Receipt]{Name: "charge", Step: ChargeCard, Command: func(o Order) Charge { return Charge{o.ID, o.Total} }}
	return saga.Definition[Order]{
		Name: "everything", Version: 2, Deadline: time.Hour,
		Steps: steps{
			parallel{Name: "prepare", Steps: steps{ok, local{Name: "book", Do: nothing, Undo: nothing}}},
			ask{Name: "release", OnlyIf: func(o Order) bool { return o.Total > 100 }, Question: func(Order) string { return "?" },
				Options: []string{"yes", "no"}, Roles: []string{"fraud"}, Timeout: time.Hour},
			choose{Name: "pay", Cases: []saga.Case[Order]{
				{Name: "card", If: func(o Order) bool { return o.Total > 0 }, Steps: steps{charge}},
				{Name: "account", Steps: steps{local{Name: "debit", Do: nothing, Undo: nothing}}}}},
			pivot,
			await{Name: "received", Signal: reviewed, Timeout: saga.NoTimeout},
			each{Name: "lines", Items: itself, ID: idOf, Steps: steps{ok}, Window: 4},
			child{Name: "bill", Saga: saga.Definition[Order]{Name: "billing", Version: 1, Steps: steps{ok}}, Data: same},
		},
		OnCompleted: saga.Announce(reviewed, func(o Order) Reservation { return Reservation{o.ID} }),
	}
}

// TestGraph: the stored form of a definition does not change by accident, and its picture shows every kind of step.
func TestGraph(t *testing.T) {
	t.Parallel()
	graph, hash, err := everything().Graph()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "graph.json", string(graph)+"\n"+hash+"\n")
	picture, err := everything().Mermaid()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "graph.mmd", picture)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

// TestHash: the hash changes with what running instances depend on, and with nothing else.
func TestHash(t *testing.T) {
	t.Parallel()
	hash := func(change func(d *saga.Definition[Order])) string {
		d := everything()
		change(&d)
		_, h, err := d.Graph()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	original := hash(func(*saga.Definition[Order]) {})
	for name, tt := range map[string]struct {
		change func(d *saga.Definition[Order])
		same   bool
	}{
		"version":  {func(d *saga.Definition[Order]) { d.Version++ }, true},
		"deadline": {func(d *saga.Definition[Order]) { d.Deadline = 0 }, true},
		"timeout":  {func(d *saga.Definition[Order]) { p := pivot; p.Timeout = time.Hour; d.Steps[3] = p }, true},
		"pivot":    {func(d *saga.Definition[Order]) { p := pivot; p.Pivot = false; d.Steps[3] = p }, false},
		"name":     {func(d *saga.Definition[Order]) { p := pivot; p.Name = "ship"; d.Steps[3] = p }, false},
		"message": {func(d *saga.Definition[Order]) {
			p := pivot
			p.Step = saga.DefineStep[StockOrder, Reservation]("other")
			d.Steps[3] = p
		}, false},
		"order":        {func(d *saga.Definition[Order]) { d.Steps[0], d.Steps[1] = d.Steps[1], d.Steps[0] }, false},
		"announcement": {func(d *saga.Definition[Order]) { d.OnCompleted = nil }, false},
	} {
		if got := hash(tt.change); (got == original) != tt.same {
			t.Errorf("%s: same hash is %t, want %t", name, got == original, tt.same)
		}
	}
}

// TestRegister: an engine refuses what it could not run.
func TestRegister(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := saga.New(store, box, saga.Config{StepTimeout: -1, MaxSignals: -1}); err == nil ||
		!strings.Contains(err.Error(), "Name") || !strings.Contains(err.Error(), "StepTimeout") || !strings.Contains(err.Error(), "MaxSignals") {
		t.Errorf("error %v, want all three", err)
	}
	engine, err := saga.New(store, box, saga.Config{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := saga.Register(engine, Fulfilment); err != nil {
		t.Fatal(err)
	}
	if _, err := saga.Register(engine, Fulfilment); err == nil || !strings.Contains(err.Error(), saga.ErrDuplicate.Error()) {
		t.Errorf("error %v, want %v", err, saga.ErrDuplicate)
	}
	other := saga.Local[Order, int]{Name: "other", Do: func(context.Context, int, *Order) error { return nil }, NoUndo: true}
	if _, err := saga.Register(engine, saga.Definition[Order]{Name: "other", Version: 1, Steps: steps{other}}); err == nil ||
		!strings.Contains(err.Error(), "its transactions are of type int, those of the engine are of type *memory.Tx") {
		t.Errorf("error %v, want the types of transactions", err)
	}
}

// TestHandleChecksSteps: a participant refuses handlers that do not fit the step.
func TestHandleChecksSteps(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := saga.NewParticipant(store, box, saga.ParticipantConfig{KeepRecords: time.Hour}); err == nil ||
		!strings.Contains(err.Error(), "Name") || !strings.Contains(err.Error(), "KeepRecords") {
		t.Errorf("error %v, want both", err)
	}
	p, err := saga.NewParticipant(store, box, saga.ParticipantConfig{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	do := func(context.Context, *memory.Tx, postrider.Typed[StockOrder]) (Reservation, error) {
		return Reservation{}, nil
	}
	undo := func(context.Context, *memory.Tx, StockOrder, Reservation) error { return nil }
	for name, err := range map[string]error{
		"there is no handler":                            saga.Handle(p, ReserveStock, nil, undo),
		"there is no undo handler":                       saga.Handle(p, ReserveStock, do, nil),
		"is defined WithoutUndo and has an undo handler": saga.Handle(p, ReserveStock.WithoutUndo(), do, undo),
		"define the step with DefineStep":                saga.Handle(p, saga.StepDefinition[StockOrder, Reservation]{}, do, undo),
		"handle \"stock.reserve\": registered already":   first(saga.Handle(p, ReserveStock, do, undo), saga.Handle(p, ReserveStock, do, undo)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %q", err, name)
		}
	}
}

// first returns the second error, if the first is nil.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// TestStartOfDataThatJSONCannotHold: Start says so.
func TestStartOfDataThatJSONCannotHold(t *testing.T) {
	t.Parallel()
	type bad struct{ F func() }
	store := memory.New(memory.Config{})
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := saga.New(store, box, saga.Config{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := saga.Register(engine, saga.Definition[bad]{Name: "bad", Version: 1, Steps: []saga.Step[bad]{
		saga.Await[bad, Reservation]{Name: "a", Signal: reviewed, Timeout: saga.NoTimeout}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := s.Start(ctx, tx, bad{F: func() {}})
		return err
	})
	if _, unsupported := errors.AsType[*json.UnsupportedTypeError](err); !unsupported {
		t.Errorf("error %v, want that of JSON", err)
	}
}
