package config

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

func TestExampleConfigurationHasEveryKeyAndIsValid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../postrider.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Parse("postrider.example.yaml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Relays {
		if _, err := c.Relay(r.Name); err != nil {
			t.Error(err)
		}
	}
	for _, r := range c.Consumers {
		if _, err := c.Consumer(r.Name); err != nil {
			t.Error(err)
		}
	}
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range leafKeys(reflect.TypeFor[Config](), "") {
		name := key[strings.LastIndex(key, ".")+1:]
		if name != "options" && !strings.Contains(string(text), name+":") {
			t.Errorf("postrider.example.yaml has no %s", key)
		}
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/configuration.md does not explain %s", key)
		}
	}
	for _, b := range Brokers {
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

// everySetting gives every setting of a relay and a consumer a value that is not its default.
const everySetting = `
store: {url: "sqlite:x.db", keep_delivered: 48h, keep_topics: [{topics: [audit], for: 90h}], max_log_bytes: 16, keep_redrives: 20h}
stop_timeout: 17s
relays:
  - name: r
    disabled: true
    topics: [a]
    start: now
    accept_unordered: true
    require_dedupe: 18s
    require_message_bytes: 19
    concurrency: 1
    max_slow_calls: 2
    max_batch: 3
    tx_batch: 4
    max_in_flight: 5
    max_in_flight_bytes: 6KiB
    max_held_keys: 7
    max_rate: 2/s
    burst: 21
    max_attempts: 8
    backoff_base: 9ms
    backoff_max: 10ms
    policies: [{types: [x], max_attempts: 2}]
    on_dead: hold
    unhandled_for: 11s
    unavailable_wait: 12s
    park_after: 13s
    attempt_timeout: 14s
    lease_ttl: 15s
    poll_min: 16ms
    poll_max: 17ms
    settle_interval: 18ms
    settle_batch: 19
consumers:
  - name: c
    disabled: true
    keep_ids: 1h
    replay_window: 2h
    require_order: true
    replays: all
    concurrency: 3
    retry_concurrency: 4
    batch: 5
    max_in_flight: 6
    max_in_flight_bytes: 7KiB
    max_attempts: 8
    local_attempts: 9
    local_for: 10ms
    park_after: 17s
    backoff_base: 11ms
    backoff_max: 12ms
    policies: [{types: [x], max_attempts: 2}]
    on_dead: hold
    unhandled: skip
    unhandled_for: 13s
    unavailable_wait: 14s
    attempt_timeout: 15s
    lease_ttl: 16s
`

// TestEverySettingHasAKey: a file can say everything about relays and consumers that is not a function or another value of Go.
func TestEverySettingHasAKey(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, everySetting)
	r, err := c.Relay("r")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := c.Consumer("c")
	if err != nil {
		t.Fatal(err)
	}
	inGo := []string{
		"Publisher", "Gate", "Interceptors", "PublishInterceptors", "Observer", "Propagator", "Logger", "Version", "Versions", "Context",
	}
	for _, v := range []reflect.Value{reflect.ValueOf(r), reflect.ValueOf(consumer)} {
		for f := range v.Type().Fields() {
			if v.FieldByIndex(f.Index).IsZero() != slices.Contains(inGo, f.Name) {
				t.Errorf("%s.%s is %v", v.Type(), f.Name, v.FieldByIndex(f.Index))
			}
		}
	}
	if r.MaxRate != 2 || r.KeepTopics["audit"] != 90*time.Hour || r.StopTimeout != 17*time.Second || consumer.StopTimeout != r.StopTimeout ||
		r.KeepDelivered != 48*time.Hour || r.OnDead != relay.HoldKey || r.Start != relay.FromNow {
		t.Errorf("read %+v", r)
	}
	if _, err := c.Relay("x"); err == nil || err.Error() != `the configuration has no relay "x"; it has r` {
		t.Errorf("an unknown relay: %v", err)
	}
	if _, err := c.Consumer("r"); err == nil {
		t.Error("a relay is taken for a consumer")
	}
	zero, _ := parse(t, "store: {url: \"sqlite:x.db\", keep_delivered: 0s}\nrelays: [{name: r}]")
	if r, err := zero.Relay("r"); err != nil || r.KeepDelivered != -1 {
		t.Errorf("nothing is kept: %v, %v", r.KeepDelivered, err)
	}
}

// TestPoliciesArrive: of relays and consumers alike.
func TestPoliciesArrive(t *testing.T) {
	t.Parallel()
	const policies = `
    backoff_max: 2ms
    policies:
      - {types: [invoice.*], max_attempts: 3, backoff: fixed, backoff_base: 10m}
      - {backoff_base: 1ms, discard_errors: ["410 Gone", "obsolete"]}
`
	c, _ := parse(t, "relays:\n  - name: to-partner"+policies+"consumers:\n  - name: view"+policies,
		"POSTRIDER_RELAYS_TO_PARTNER_POLICIES_0_MAX_ATTEMPTS=4", "POSTRIDER_CONSUMERS_VIEW_POLICIES_0_MAX_ATTEMPTS=4")
	r, err := c.Relay("to-partner")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := c.Consumer("view")
	if err != nil {
		t.Fatal(err)
	}
	for what, policies := range map[string][]relay.Policy{"relay": r.Policies, "consumer": consumer.Policies} {
		fixed, rest := relay.PolicyFor(policies, "invoice.sent"), relay.PolicyFor(policies, "order.placed")
		if fixed.MaxAttempts != 4 || fixed.Wait(7, nil) != 10*time.Minute || fixed.Discard != nil {
			t.Errorf("%s: the fixed policy is %+v", what, fixed)
		}
		for range 100 {
			if wait := rest.Wait(50, nil); wait <= 0 || wait > 2*time.Millisecond {
				t.Errorf("%s: the exponential policy waits %s", what, wait)
			}
		}
		if rest.MaxAttempts != 0 || !rest.Discard(errors.New("status 410 Gone")) || rest.Discard(errors.New("status 503")) {
			t.Errorf("%s: the exponential policy is %+v", what, rest)
		}
	}
}

// TestRelaysWithHandlers: a program's file is one for the binary's commands too, except for those that run relays.
func TestRelaysWithHandlers(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, "store: {url: \"sqlite:x.db\"}\nrelays:\n  - {name: a, publisher: \"nats://h?stream=S\"}\n  - name: billing\n")
	err := c.CheckPublishers()
	if want := "postrider.yaml:4:5: relays[1].publisher: is missing, e.g. publisher: nats://"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if c.Relays = c.Relays[:1]; c.CheckPublishers() != nil {
		t.Error(c.CheckPublishers())
	}
}

func TestConsumersAreChecked(t *testing.T) {
	t.Parallel()
	_, _, err := Parse("postrider.yaml", []byte(`relays: [{name: a}]
consumers:
  - {concurrency: 3}
  - {name: a, backoff_base: 2s, backoff_max: 1s}
  - {name: b, policies: [{backoff: fixed}]}
  - {name: b, on_dead: none}
`), nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"postrider.yaml:3:5: consumers[0]: name is missing", `consumers[1].name: "a" stands here twice`, "consumers[1].backoff_max: 1s is below",
		"consumers[2].policies[0].backoff: fixed needs backoff_base", `consumers[3].name: "b" stands here twice`,
		`consumers[3].on_dead: "none" is not allowed; allowed: continue, hold`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

// TestLoad reads a file, and the environment over it.
func TestLoad(t *testing.T) {
	name := t.TempDir() + "/postrider.yaml"
	if err := os.WriteFile(name, []byte("relays: [{name: billing, concurrency: 3}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POSTRIDER_RELAYS_BILLING_DISABLED", "true")
	c, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Relay("billing"); err != nil || r.Concurrency != 3 || !r.Disabled {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Load(name + "x"); err == nil {
		t.Error("a file that does not exist is read")
	}
}
