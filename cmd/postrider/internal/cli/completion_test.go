package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/store"
)

// complete returns what a shell would offer for the last argument.
func complete(t *testing.T, args ...string) string {
	t.Helper()
	return clitest.OK(t, append([]string{"__complete"}, args...)...)
}

func TestCompletionKnowsWhatTheStoreHas(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.PublishKeys(t, url, "bill/7")
	clitest.Hold(t, url, "to-audit")
	clitest.OK(t, "redrive", "start", "--key", "order/3", "--rate", "0.001", "--detach", "--yes", "--by", "eva", "--store", url)
	parked := clitest.PublishID(t, url, "")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-audit", func(s *store.Settlement, r store.Entry) {
		s.Parked = append(s.Parked, store.ParkOutcome{Sequence: r.Message.Sequence, FromLog: true, Reason: store.ParkSnoozed, Cause: "not yet", After: time.Hour})
	})
	for line, want := range map[string][]string{
		"status --relay ":              {"to-audit\trelay", "to-nats\trelay"},
		"explain --relay to-n":         {"to-nats\trelay"},
		"outbox remove ":               {"to-audit\trelay", "to-nats\trelay"},
		"dead list --relay ":           {"to-audit\trelay", "to-nats\trelay"},
		"dead redrive ":                {"1\torder.placed order/1: receiver says no", "2\t", "3\t"},
		"dead discard 1 ":              {"2\torder.placed order/2: receiver says no", "3\t"},
		"dead show 2 ":                 nil,
		"redrive cancel ":              {"1\trunning, by eva"},
		"redrive show 2":               nil,
		"held retry ":                  {"bill/7\tto-audit"},
		"held show --relay to-nats ":   nil,
		"held skip --relay to-audit ":  {"bill/7\tto-audit"},
		"explain --key ":               {"bill/7\tto-audit"},
		"parked retry ":                {parked + "\tto-audit, snoozed: not yet"},
		"parked show --relay to-nats ": nil,
		"parked show --relay to-a":     {"to-audit\trelay"},
		"inbox status --consumer ":     nil,
	} {
		args := strings.Split(line, " ")
		if name := args[0]; name == "held" {
			args = append([]string{name}, args[1:]...)
		}
		got := complete(t, append([]string{args[0], "--store", url}, args[1:]...)...)
		offered, _, _ := strings.Cut(got, ":")
		if len(want) == 0 && strings.Contains(offered, "\t") {
			t.Errorf("%s: offers %q", line, got)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q is missing in %q", line, w, got)
			}
		}
	}
}

// TestCompletionWithoutAStore: an error at the prompt would only disturb.
func TestCompletionWithoutAStore(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"status --relay ", "status --store sqlite:not-there.db --relay ", "status --store postgres://127.0.0.1:1/x --relay "} {
		if got := complete(t, strings.Split(line, " ")...); got != ":36\n" {
			t.Errorf("%s: offers %q", line, got)
		}
	}
}

// TestHintsCanBePasted: a hint names the store that the command was given.
func TestHintsCanBePasted(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "postrider dead redrive 2 --store "+url+"\n",
		`postrider dead discard 2 --because "…" --store `+url+"\n")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "postrider dead list --relay to-nats --store "+url+"\n")
	file := clitest.WriteFile(t, "stores:\n  - {name: shop, url: '"+url+"'}\n  - {name: other, url: 'sqlite:not-there.db'}\n")
	clitest.Contains(t, clitest.OK(t, "status", "--config", file, "--store", "shop"),
		"postrider dead list --relay to-nats --config "+file+" --store shop\n")
	r := clitest.Invocation{Environ: []string{"POSTRIDER_STORE_URL=" + url, "POSTRIDER_CONFIG=" + file}, Args: []string{"status", "--config", ""}}.Run(t)
	clitest.Contains(t, r.Out, "postrider dead list --relay to-nats\n")
}

// TestTablesFit100Columns: with names, keys and causes of the usual length.
func TestTablesFit100Columns(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.PublishKeys(t, url, "customer/10001", "customer/10001")
	clitest.Hold(t, url, "to-nats")
	clitest.OK(t, "dead", "redrive", "1", "--yes", "--store", url)
	for _, line := range []string{
		"status", "dead list", "dead list --state any", "dead counts", "held list", "held show customer/10001", "migrate status", "inbox status",
		"parked list", "parked count",
	} {
		for text := range strings.Lines(clitest.OK(t, append(strings.Fields(line), "--store", url)...)) {
			if n := len([]rune(strings.TrimSuffix(text, "\n"))); n > 100 && !strings.Contains(text, url) { // the URL may be of any length
				t.Errorf("%s: a line of %d columns: %s", line, n, text)
			}
		}
	}
}

// TestColumnsHaveOneMeaning: no table has two columns of the same name.
func TestColumnsHaveOneMeaning(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	out := clitest.OK(t, "status", "--store", url)
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "RELAY") {
			continue
		}
		clitest.Contains(t, line, "PARKED  PARKED FOR  DEAD  DEAD FOR")
		clitest.Lacks(t, line, "OLDEST")
	}
}
