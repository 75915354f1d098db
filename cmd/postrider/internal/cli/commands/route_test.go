package commands_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

const routes = `
relays:
  - {name: to-nats, publisher: "tls://u:secret@h:4222?stream=S&dedupe_window=10m", topics: [order.*, payment.*]}
  - {name: to-partner, publisher: "https://partner.example/T0/secret#secret=whsec_x", topics: [order.placed], on_dead: hold, max_attempts: 3}
  - {name: to-audit, publisher: "nats://h:4222?stream=A", topics: [audit], require_dedupe: 1h}
`

func TestRouteExplain(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, routes)
	out := clitest.OK(t, "route", "explain", "order.placed", "--config", file)
	clitest.Contains(t, out, "topic order.placed goes to 2 of 3 relays",
		"relay to-nats: takes it, by the pattern order.*", "tls://h:4222", "kept per key", "dropped for 10m0s, by message ID",
		"relay to-partner: takes it, by the pattern order.placed", "https://partner.example/…", "3 attempts",
		"come through; consumers need the inbox", "stays held until somebody decides",
		"relay to-audit: skips it; of its topics, audit, none matches")
	if strings.Contains(out, "secret") {
		t.Errorf("a secret is shown:\n%s", out)
	}
	clitest.Fails(t, program.ExitNo, "no relay takes the topic invoice.sent: its messages go nowhere", "route", "explain", "invoice.sent", "--config", file)
	r := clitest.Run(t, "route", "explain", "audit", "--config", file)
	clitest.Expect(t, r, program.ExitNo, "1 relay that would take the topic audit would be refused")
	clitest.Contains(t, r.Out, "refused", "RequireDedupe is 1h0m0s, and the broker drops duplicates for 2m0s only; lengthen that (dedupe_window")
	clitest.Contains(t, clitest.OK(t, "route", "explain", "x", "--config", file, "--only", "to-nats", "--topics", "x"), "takes it, by the pattern x")
	clitest.Contains(t, clitest.OK(t, "route", "explain", "x", "--publisher", "https://h/x#secret=whsec_x"), "relay to-webhook: takes it, by the pattern *")
	clitest.Fails(t, program.ExitUsage, "no relay is described", "route", "explain", "x")
	clitest.Fails(t, program.ExitUsage, "route explain takes TOPIC, got 0", "route", "explain")
}

func TestRouteExplainInJSON(t *testing.T) {
	t.Parallel()
	var got struct {
		Topic  string
		Routes []struct {
			Relay, Pattern, Publisher string
			Takes, Ordered            bool
			DedupeWindow              float64 `json:"dedupe_window_seconds"`
			MaxAttempts               int     `json:"max_attempts"`
		}
	}
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "route", "explain", "order.paid", "--json", "--config", clitest.WriteFile(t, routes))), &got))
	if len(got.Routes) != 3 || got.Topic != "order.paid" {
		t.Fatalf("read %+v", got)
	}
	if r := got.Routes[0]; !r.Takes || !r.Ordered || r.Pattern != "order.*" || r.DedupeWindow != 600 || r.MaxAttempts != 10 || r.Relay != "to-nats" {
		t.Errorf("first is %+v", r)
	}
	if r := got.Routes[1]; r.Takes || r.Pattern != "" {
		t.Errorf("second is %+v", r)
	}
}

func TestRouteExplainAsksTheBroker(t *testing.T) {
	t.Parallel()
	broker := clitest.StartNATS(t)
	clitest.Contains(t, clitest.OK(t, "route", "explain", "x", "--publisher", broker+"?stream=S"), "largest message  what the server takes")
	clitest.Contains(t, clitest.OK(t, "route", "explain", "x", "--publisher", broker+"?stream=S", "--connect"), "largest message  1,044,480 bytes; a larger one is dead")
}

func TestRouteList(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, routes)
	out := clitest.OK(t, "route", "list", "--config", file)
	clitest.Contains(t, out, "RELAY", "to-nats", "order.* payment.*", "to-partner", "https://partner.example/…", "hold")
	clitest.Contains(t, clitest.OK(t, "route", "list", "--json", "--config", file), `"topics": [`, `"relay": "to-audit"`)
	if strings.Contains(out, "secret") {
		t.Errorf("a secret is shown:\n%s", out)
	}
	clitest.Fails(t, program.ExitUsage, "route needs a subcommand: explain, list", "route")
}

// TestRouteListOfAStore: with --store, only the relays of that store are listed, and each route names its store.
func TestRouteListOfAStore(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, `
stores: [{name: s1, url: "sqlite:a.db"}, {name: s2, url: "sqlite:b.db"}]
relays: [{name: a, store: s1, publisher: "nats://h?stream=S"}, {name: b, store: s2, publisher: "nats://h?stream=S"}]
`)
	for store, want := range map[string][]string{"": {"a of s1", "b of s2"}, "s1": {"a of s1"}, "s2": {"b of s2"}} {
		args := []string{"route", "list", "--json", "--config", file}
		if store != "" {
			args = append(args, "--store", store)
		}
		var listed struct {
			Routes []struct{ Relay, Store string }
		}
		clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, args...)), &listed))
		var got []string
		for _, r := range listed.Routes {
			got = append(got, r.Relay+" of "+r.Store)
		}
		if !slices.Equal(got, want) {
			t.Errorf("--store %q lists %q, want %q", store, got, want)
		}
	}
	clitest.Contains(t, clitest.OK(t, "route", "list", "--config", file, "--store", "s2"), "b      s2 ")
	clitest.Fails(t, program.ExitUsage, "the configuration has several stores", "route", "list", "--config", file, "--store", "sqlite:c.db")
}
