package commands_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// withSagas fills an outbox with three instances: one waits, one is stuck, one has ended.
func withSagas(t *testing.T, url string) {
	t.Helper()
	o := clitest.OpenOutbox(t, url)
	start := func(id string, status store.SagaStatus) store.SagaStart {
		return store.SagaStart{
			SagaIdentity: store.SagaIdentity{Run: "run-" + id, ID: id, Engine: "shop", Saga: "order-fulfilment", Version: 2, Hash: "h",
				Kind: store.SagaOrchestrated, Key: "key/" + id},
			SagaCondition: store.SagaCondition{Status: status, Direction: store.SagaForward, Waiting: "pay/card/charge", Obligations: 2, Released: 1},
			SagaTimes:     store.SagaTimes{Deadline: 72 * time.Hour},
			SagaBody:      store.SagaBody{State: []byte("state"), Data: []byte(`{"total":1}`)},
			Token:         "secret",
			Aliases:       []store.SagaAlias{{Name: "payment", Value: "p-" + id}},
			Labels:        map[string]string{"customer": "42"},
			Transition:    store.SagaTransition{Input: "start", Entries: []store.SagaEntry{{Name: "step.started", Step: "reserve[SKU-1]/line"}}},
		}
	}
	stuck := start("order-2", store.SagaStuck)
	stuck.Direction, stuck.Cause, stuck.Detail = store.SagaBack, "refused", "refund: no such payment\nsecond line"
	first := start("0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a", store.SagaRunning)
	ended := start("order-3", store.SagaRunning)
	inTx(t, o, func(s store.SagaStore[*sql.Tx], tx *sql.Tx) {
		_, err := s.CreateSagas(t.Context(), tx, []store.SagaStart{first, stuck, ended})
		clitest.Must(t, err)
		c := store.SagaChange{Run: ended.Run, Rev: 3, SagaCondition: ended.SagaCondition, SagaBody: ended.SagaBody,
			Transitions: []store.SagaTransition{
				{Input: "timer", Entries: []store.SagaEntry{{Name: "timer"}, {Name: "step.timed_out", Step: "charge"}}},
				{Input: "operator", Actor: "olga", Note: "done by hand"},
			}}
		c.Status, c.Cause = store.SagaCompensated, "timed out"
		clitest.Must(t, s.SaveSagas(t.Context(), tx, []store.SagaChange{c}))
	})
}

func inTx(t *testing.T, o *backend.Outbox, f func(s store.SagaStore[*sql.Tx], tx *sql.Tx)) {
	t.Helper()
	tx, err := o.Transactions.Begin(t.Context())
	clitest.Must(t, err)
	f(o.Transactions.(store.SagaStore[*sql.Tx]), tx)
	clitest.Must(t, o.Transactions.Commit(t.Context(), tx))
}

func TestSagaList(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.Contains(t, clitest.Run(t, "saga", "list", "--store", url).Err, "no instances of sagas match")
	withSagas(t, url)
	list := clitest.OK(t, "saga", "list", "--store", url)
	clitest.Contains(t, list, "ID ", "WAITS FOR", "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a", "order-2", "stuck", "pay/card/charge")
	clitest.Lacks(t, list, "order-3")
	for line := range strings.Lines(list) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	clitest.Contains(t, clitest.OK(t, "saga", "list", "--status", "any", "--label", "customer=42", "--store", url), "order-3", "ended: timed out")
	stuck := clitest.OK(t, "saga", "list", "--status", "stuck", "--waiting-for", "card", "--store", url)
	clitest.Contains(t, stuck, "order-2")
	clitest.Lacks(t, stuck, "0199f3a4")
	one := clitest.Run(t, "saga", "list", "--limit", "1", "--store", url)
	clitest.Contains(t, one.Err, "go on with --after run-0199f3a4")
	clitest.Contains(t, clitest.OK(t, "saga", "list", "--after", "run-0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a", "--store", url), "order-2")
	var summary map[string]any
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "saga", "list", "--status", "stuck", "--json", "--store", url)), &summary))
	if summary["id"] != "order-2" || summary["saga"] != "order-fulfilment" || summary["age_seconds"] == nil || summary["deadline_at"] == nil {
		t.Errorf("JSON: %v", summary)
	}
	clitest.Fails(t, program.ExitUsage, "allowed: open", "saga", "list", "--status", "happy", "--store", url)
	clitest.Fails(t, program.ExitUsage, `--after "zzz": there is no such run`, "saga", "list", "--after", "zzz", "--store", url)
	gone := postrider.NewID() // what the page before ended with may have been purged since
	clitest.OK(t, "saga", "list", "--after", gone, "--store", url)
	clitest.Fails(t, program.ExitUsage, "--limit must not be negative", "saga", "list", "--limit", "-1", "--store", url)
	clitest.Fails(t, program.ExitUsage, "--older-than must not be negative, is -1h0m0s", "saga", "list", "--older-than", "-1h", "--store", url)
	clitest.Fails(t, program.ExitFailed, "no saga has the name nosuch", "saga", "list", "--saga", "nosuch", "--store", url)
}

func TestSagaShow(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	withSagas(t, url)
	stuck := clitest.OK(t, "saga", "show", "order-2", "--store", url)
	clitest.Contains(t, stuck, "instance order-2 of saga order-fulfilment, version 2: stuck while compensating", "pay/card/charge", "refund: no such payment",
		"second line", "2 open, 1 released by an operator", "key/order-2, held by this instance", "in 2d23h", "alias payment", "label customer", "run-order-2",
		"start", "step.started reserve[SKU-1]/line")
	clitest.Lacks(t, stuck, "secret", "total")
	clitest.Contains(t, clitest.OK(t, "saga", "show", "run-order-3", "--store", url), "compensated", "by olga, done by hand", " timer     step.timed_out charge\n")
	if data := clitest.OK(t, "saga", "show", "order-2", "--data", "--store", url); data != `{"total":1}` {
		t.Errorf("data: %s", data)
	}
	text := clitest.OK(t, "saga", "show", "order-3", "--json", "--store", url)
	clitest.Lacks(t, text, "secret", "total")
	var shown struct {
		ID      string
		Status  string
		Aliases []store.SagaAlias
		Labels  map[string]string
		History []store.SagaTransition
	}
	clitest.Must(t, json.Unmarshal([]byte(text), &shown))
	if shown.ID != "order-3" || shown.Status != "compensated" || len(shown.Aliases) != 1 || shown.Labels["customer"] != "42" || len(shown.History) != 3 {
		t.Errorf("JSON: %+v", shown)
	}
	clitest.Fails(t, program.ExitFailed, "no such instance of a saga: nobody", "saga", "show", "nobody", "--store", url)
	clitest.Contains(t, clitest.OK(t, "__complete", "saga", "show", "--store", url, "order"), "order-2\torder-fulfilment stuck key/order-2")
	inTx(t, clitest.OpenOutbox(t, url), func(s store.SagaStore[*sql.Tx], tx *sql.Tx) {
		clitest.Must(t, s.SaveSagas(t.Context(), tx, []store.SagaChange{{
			Run: "run-order-2", Rev: 2, SagaCondition: store.SagaCondition{Status: store.SagaCompleted, Direction: store.SagaForward, Obligations: 2},
			Transitions: []store.SagaTransition{{Input: "operator"}},
		}}))
	})
	clitest.Lacks(t, clitest.OK(t, "saga", "show", "order-2", "--store", url), "obligations") // a completed instance keeps what was done
}

// TestSagaChildren: an instance and those that its steps started name each other.
func TestSagaChildren(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	withSagas(t, url)
	o := clitest.OpenOutbox(t, url)
	inTx(t, o, func(s store.SagaStore[*sql.Tx], tx *sql.Tx) {
		var starts []store.SagaStart
		for i := range 22 {
			starts = append(starts, store.SagaStart{
				SagaIdentity: store.SagaIdentity{Run: fmt.Sprintf("run-child-%02d", i), ID: fmt.Sprintf("child-%02d", i), Engine: "shop", Saga: "payment",
					Version: 1, Hash: "h", Kind: store.SagaOrchestrated, ParentRun: "run-order-2", ParentStep: "pay"},
				SagaCondition: store.SagaCondition{Status: store.SagaRunning, Direction: store.SagaForward}, SagaBody: store.SagaBody{State: []byte("{}"), Data: []byte("{}")},
				Token: "secret", Transition: store.SagaTransition{Input: "start"},
			})
		}
		_, err := s.CreateSagas(t.Context(), tx, starts)
		clitest.Must(t, err)
	})
	parent := clitest.OK(t, "saga", "show", "order-2", "--store", url)
	clitest.Contains(t, parent, "step pay", "instance child-00 of saga payment: running", "child-19", "saga list --status any --parent run-order-2")
	clitest.Lacks(t, parent, "child-20")
	clitest.Contains(t, clitest.OK(t, "saga", "show", "child-00", "--store", url), "run-order-2, step pay")
	list := clitest.OK(t, "saga", "list", "--parent", "run-order-2", "--store", url)
	clitest.Contains(t, list, "child-00", "child-21")
	clitest.Lacks(t, list, "order-2 ")
	clitest.Contains(t, clitest.OK(t, "saga", "show", "order-2", "--json", "--store", url), `"children"`, "child-19")
}
