package explain_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inspect"
)

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

		out := clitest.OK(t, "explain", paid, "--thorough", "--store", "shop", "--config", config)
		clitest.Contains(t, out, "caused by\n  "+requested+"  ", "in  billing  dead letter 1 in billing\n  "+order+"  ", "\ncaused\n  mine  ", "\n    "+deep+"  ")
		clitest.Lacks(t, out, "not complete")
		clitest.Contains(t, clitest.OK(t, "explain", "mine", "--thorough", "--store", "shop", "--config", config), "caused by\n  "+paid)
		out = clitest.OK(t, "explain", order, "--store", "shop", "--config", partly, "--thorough")
		clitest.Contains(t, out, "caused\n  "+requested, "not complete\n  Store stock cannot be read: ", "none.db")
		clitest.Lacks(t, out, "caused by", "to search longer")

		var e struct{ Causation inspect.Causation }
		out = clitest.OK(t, "explain", paid, "--thorough", "--json", "--store", "shop", "--config", partly)
		clitest.Must(t, json.Unmarshal([]byte(out), &e))
		if c := e.Causation; len(c.Causes) != 2 || c.Causes[0].ID != order || c.Causes[1].Store != "billing" || len(c.Effects) != 1 || c.Effects[0].Effects[0].ID != deep ||
			c.Message.Key != "payment/1" || c.Message.CorrelationID != "p-1" || c.Complete || c.Incomplete[0].Reason != inspect.GapUnreachable {
			t.Errorf("%+v", c)
		}
		clitest.Contains(t, clitest.OK(t, "explain", deep, "--store", billing), "not complete\n  The cause mine was not found in ", "explain "+deep+" --thorough")
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
		out := clitest.OK(t, "explain", cause, "--thorough", "--store", url)
		clitest.Contains(t, out, "\ncaused\n  "+effect)
		clitest.Lacks(t, out, "not complete")
		clitest.Contains(t, clitest.OK(t, "explain", effect, "--thorough", "--store", url), "caused by\n  "+cause)
	})
}
