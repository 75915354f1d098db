package commands_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inspect"
)

// explained returns what explain says about a message. It repeats the command if the search for causes and effects ran out of time, as it
// does on a busy machine.
func explained(t *testing.T, args ...string) string {
	t.Helper()
	for range 100 {
		r := clitest.Run(t, append([]string{"explain"}, args...)...)
		if r.Code != 0 {
			t.Fatalf("code %d: %s%s", r.Code, r.Out, r.Err)
		}
		if !strings.Contains(r.Out, "did not answer everything within") && !strings.Contains(r.Err, "could not be searched for in time") {
			return r.Out
		}
	}
	t.Fatal("each search ran out of time")
	return ""
}

// TestExplainFindsCausesAndEffects: on each store, together with a second store of the configuration, and a third one that cannot be opened.
func TestExplainFindsCausesAndEffects(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, shop string) {
		billing := clitest.NewOutbox(t)
		config := clitest.WriteFile(t, fmt.Sprintf("stores:\n- {name: shop, url: %q}\n- {name: billing, url: %q}\n", shop, billing))
		partly := clitest.WriteFile(t, fmt.Sprintf("stores:\n- {name: shop, url: %q}\n- {name: billing, url: %q}\n- {name: stock, url: \"sqlite:%s/none.db\"}\n",
			shop, billing, t.TempDir()))
		order := clitest.PublishID(t, shop, "order/1")
		requested := clitest.PublishID(t, billing, "order/1", "--causation-id", order)
		paid := clitest.PublishID(t, shop, "payment/1", "--causation-id", requested, "--correlation-id", "p-1")
		own := clitest.PublishID(t, shop, "order/1", "--causation-id", paid, "--id", "mine")
		deep := clitest.PublishID(t, billing, "order/1", "--causation-id", own)
		clitest.PublishID(t, shop, "order/2")
		clitest.DeadLetterOne(t, billing, "to-nats")

		out := explained(t, paid, "--thorough", "--store", "shop", "--config", config)
		clitest.Contains(t, out, "caused by\n  "+requested+"  ", "in  billing  dead letter 1 in billing\n  "+order+"  ", "\ncaused\n  mine  ", "\n    "+deep+"  ")
		clitest.Lacks(t, out, "not complete")
		clitest.Contains(t, explained(t, "mine", "--thorough", "--store", "shop", "--config", config), "caused by\n  "+paid)
		out = explained(t, order, "--store", "shop", "--config", partly, "--thorough")
		clitest.Contains(t, out, "caused\n  "+requested, "not complete\n  Store stock cannot be read: ", "none.db")
		clitest.Lacks(t, out, "caused by", "to search longer")

		var e struct{ Causation inspect.Causation }
		out = explained(t, paid, "--thorough", "--json", "--store", "shop", "--config", partly)
		clitest.Must(t, json.Unmarshal([]byte(out), &e))
		if c := e.Causation; len(c.Causes) != 2 || c.Causes[0].ID != order || c.Causes[1].Store != "billing" || len(c.Effects) != 1 || c.Effects[0].Effects[0].ID != deep ||
			c.Message.Key != "payment/1" || c.Message.CorrelationID != "p-1" || c.Complete || c.Incomplete[0].Reason != inspect.GapUnreachable {
			t.Errorf("%+v", c)
		}
		clitest.Contains(t, explained(t, deep, "--store", billing), "not complete\n  The cause mine was not found in ", "explain "+deep+" --thorough")
	})
	clitest.Fails(t, program.ExitUsage, "--thorough needs a message ID", "explain", "--key", "order/1", "--thorough", "--store", clitest.NewOutbox(t))
}

// TestExplainReadsTheLogByItsIndex: among many messages of several transactions, an effect is found from its cause on, without the log before it.
func TestExplainReadsTheLogByItsIndex(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		o := clitest.OpenOutbox(t, url)
		publish := func(cause string, n int) []string {
			t.Helper()
			var msgs []*postrider.Message
			for range n {
				msgs = append(msgs, &postrider.Message{Type: "order.placed", Topic: "orders", CausationID: cause, Payload: []byte("{}")})
			}
			ids, err := o.Publish(t.Context(), "test", msgs)
			clitest.Must(t, err)
			return ids
		}
		for range 12 {
			publish("", 500)
		}
		cause := publish("", 1)[0]
		publish("", 300)
		effect := publish(cause, 1)[0]
		out := explained(t, cause, "--thorough", "--store", url)
		clitest.Contains(t, out, "\ncaused\n  "+effect)
		clitest.Lacks(t, out, "not complete")
		clitest.Contains(t, explained(t, effect, "--thorough", "--store", url), "caused by\n  "+cause)
	})
}
