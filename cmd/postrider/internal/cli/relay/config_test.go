package relay

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
	"github.com/postrider/postrider/relay"
)

func TestExampleConfigurationHasEveryKeyAndIsValid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../../postrider.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Parse("postrider.example.yaml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Relays {
		s, _ := c.StoreOf(r)
		ConfigOf(r, s, c.StopTimeout, nil, nil)
	}
	page, err := os.ReadFile("../../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range leafKeys(reflect.TypeFor[config.Config](), "") {
		name := key[strings.LastIndex(key, ".")+1:]
		if name != "options" && !strings.Contains(string(text), name+":") {
			t.Errorf("postrider.example.yaml has no %s", key)
		}
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/configuration.md does not explain %s", key)
		}
	}
	for _, b := range config.Brokers {
		_, section, _ := strings.Cut(string(page), "\n#### "+b.Name+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		for _, option := range b.Options {
			if !strings.Contains(section, "`"+option+"`") {
				t.Errorf("docs/configuration.md does not explain the option %s in its section %s", option, b.Name)
			}
		}
	}
}

// leafKeys lists the paths of all keys.
func leafKeys(t reflect.Type, path string) []string {
	var out []string
	for f := range t.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		if path != "" {
			key = path + "." + key
		}
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			out = append(out, leafKeys(inner, key)...)
		} else {
			out = append(out, key)
		}
	}
	return out
}

func TestConfigurationOfARelayArrives(t *testing.T) {
	t.Parallel()
	zero := time.Duration(0)
	c := ConfigOf(config.Relay{
		Name: "n", Topics: []string{"a"}, Start: "now", AcceptUnordered: true, Concurrency: 1, MaxBatch: 2, MaxInFlight: 3,
		MaxInFlightBytes: 4, MaxHeldKeys: 5, MaxAttempts: 6, BackoffBase: 7, BackoffMax: 8, OnDead: "hold", ParkAfter: 9,
		AttemptTimeout: 10, LeaseTTL: 11, PollMin: 12, PollMax: 13, SettleInterval: 14, SettleBatch: 15,
		RequireDedupe: 18, RequireMessageBytes: 19, MaxRate: 7200, Burst: 21,
	}, config.Store{KeepDelivered: &zero, MaxLogBytes: 16, KeepRedrives: 20}, 17, nil, nil)
	want := relay.Config{
		Name: "n", Topics: []string{"a"}, Start: relay.FromNow, AcceptUnordered: true, Concurrency: 1, MaxBatch: 2, MaxInFlight: 3,
		MaxInFlightBytes: 4, MaxHeldKeys: 5, MaxAttempts: 6, BackoffBase: 7, BackoffMax: 8, OnDead: relay.HoldKey, ParkAfter: 9,
		AttemptTimeout: 10, LeaseTTL: 11, PollMin: 12, PollMax: 13, SettleInterval: 14, SettleBatch: 15, KeepDelivered: -1,
		MaxLogBytes: 16, KeepRedrives: 20, StopTimeout: 17, RequireDedupe: 18, RequireMessageBytes: 19, MaxRate: 2, Burst: 21, Version: program.ReadBuild().Version,
	}
	if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestPoliciesOfARelayArrive(t *testing.T) {
	t.Parallel()
	c, _, err := config.Parse("postrider.yaml", []byte(`
store: {url: "sqlite:x.db"}
relays:
  - name: to-partner
    publisher: https://partner.example
    backoff_max: 2ms
    policies:
      - {types: [invoice.*], max_attempts: 3, backoff: fixed, backoff_base: 10m}
      - {backoff_base: 1ms, discard_errors: ["410 Gone", "obsolete"]}
`), []string{"POSTRIDER_RELAYS_TO_PARTNER_POLICIES_0_MAX_ATTEMPTS=4"})
	if err != nil {
		t.Fatal(err)
	}
	policies := ConfigOf(c.Relays[0], c.Store, 0, nil, nil).Policies
	fixed, rest := relay.PolicyFor(policies, "invoice.sent"), relay.PolicyFor(policies, "order.placed")
	if fixed.MaxAttempts != 4 || fixed.Wait(7, nil) != 10*time.Minute || fixed.Discard != nil {
		t.Errorf("the fixed policy is %+v", fixed)
	}
	for range 100 {
		if wait := rest.Wait(50, nil); wait <= 0 || wait > 2*time.Millisecond {
			t.Errorf("the exponential policy waits %s", wait)
		}
	}
	if rest.MaxAttempts != 0 || !rest.Discard(errors.New("status 410 Gone")) || rest.Discard(errors.New("status 503")) {
		t.Errorf("the exponential policy is %+v", rest)
	}
}
