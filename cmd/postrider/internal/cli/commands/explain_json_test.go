package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// explainJSON runs explain with --json.
func explainJSON(t *testing.T, url string, args ...string) inspect.Explanation {
	t.Helper()
	var e inspect.Explanation
	out := clitest.OK(t, append([]string{"explain", "--json", "--store", url}, args...)...)
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	return e
}

func TestExplainAsJSON(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		id := clitest.PublishID(t, url, "order/1")
		clitest.PublishKeys(t, url, "order/1")
		clitest.Hold(t, url, "to-nats")
		e := explainJSON(t, url, id)
		if len(e.Places) != 1 || e.Message.ID != id || e.Places[0].State != inspect.Blocking || e.Places[0].HeldKey.Parked != 2 ||
			e.Places[0].Attempts != 3 || e.Places[0].Next.Code != inspect.NextProcess || e.Places[0].Actions[0].Kind != inspect.ActionRetry {
			t.Errorf("message: %+v", e)
		}
		if e = explainJSON(t, url, "--key", "order/1"); len(e.Places) != 1 || e.Places[0].State != inspect.Held || e.Key.Key != "order/1" {
			t.Errorf("key: %+v", e)
		}
		if e = explainJSON(t, url, "--relay", "to-nats"); len(e.Places) != 1 || e.Places[0].State != inspect.Stopped || e.Places[0].Load.Parked.N != 2 {
			t.Errorf("relay: %+v", e)
		}
		clitest.Fails(t, program.ExitFailed, "no message", "explain", "nobody", "--json", "--store", url)
	})
}

func TestExplainUnroutedMessageAsJSON(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	id := clitest.PublishID(t, url, "order/1")
	o := clitest.OpenOutbox(t, url)
	_, err := o.Acquire(t.Context(), "to-nats", store.Owner{ID: "x", Topics: []string{"bills"}}, clitest.Acquire(0))
	clitest.Must(t, err)
	e := explainJSON(t, url, id)
	if !e.Unrouted || e.Next.Code != inspect.NextDrop || e.Actions[0].Kind != inspect.ActionRoute || e.Places[0].State != inspect.NotTaken {
		t.Errorf("explained: %+v", e)
	}
}

func TestExplainRelay(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Contains(t, clitest.OK(t, "explain", "--relay", "to-nats", "--store", url), "relay to-nats: stopped", "held keys", "processes     0",
		"nothing until a process runs; start the program that runs this relay")
	clitest.Fails(t, program.ExitFailed, "no such relay", "explain", "--relay", "nobody", "--store", url)
	clitest.Fails(t, program.ExitUsage, "give a message ID, --key or --relay", "explain", "m-1", "--relay", "to-nats", "--store", url)
}

// TestExplainKeyThatWaitsForADecision: the dead letter of its blocking message has to be decided about first, and a retry
// would be refused.
func TestExplainKeyThatWaitsForADecision(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	id := clitest.PublishID(t, url, "order/1")
	queued := clitest.PublishID(t, url, "order/1")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", func(s *store.Settlement, r store.Entry) {
		m := r.Message
		if len(s.Held) > 0 {
			s.Parked = append(s.Parked, store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true})
			return
		}
		s.Dead = append(s.Dead, store.DeadOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: "refused", Attempts: 1})
		s.Held = append(s.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkDead, UntilDecided: true})
	})
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "dead letter 1, open", "its key is held until somebody decides", "postrider dead redrive 1")
	for _, args := range [][]string{{queued}, {"--key", "order/1"}} {
		out := clitest.OK(t, append([]string{"explain", "--store", url}, args...)...)
		clitest.Contains(t, out, "nothing until somebody decides about the dead letter", "postrider dead list --relay to-nats --key order/1", "held skip order/1")
		clitest.Lacks(t, out, "held retry", "blocks its held key")
	}
}
