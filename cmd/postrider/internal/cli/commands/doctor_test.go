package commands_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store"
)

// examine runs the command, and returns its report and its exit code.
func examine(t *testing.T, args ...string) (r doctor.Report, code int) {
	t.Helper()
	result := clitest.Run(t, append([]string{"doctor", "--json", "--timeout", "1h"}, args...)...)
	if err := json.Unmarshal([]byte(result.Out), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, result.Out, result.Err)
	}
	return r, result.Code
}

// found returns the only finding of a check, which says everything.
func found(t *testing.T, url, check string) doctor.Finding {
	t.Helper()
	r, _ := examine(t, check, "--store", url)
	findings := r.Findings()
	if len(findings) != 1 {
		t.Fatalf("%s: %+v", check, r)
	}
	f := findings[0]
	if f.Check != check || f.Target == "" || f.Message == "" || f.Impact == "" || f.Evidence == "" || len(f.Fix) == 0 {
		t.Errorf("a part of the finding is missing: %+v", f)
	}
	return f
}

func passes(t *testing.T, url, check string) {
	t.Helper()
	if r, code := examine(t, check, "--store", url, "--strict"); code != program.ExitDone {
		t.Errorf("%s is not gone: %+v", check, r)
	}
}

// paste runs a command line as a shell does.
func paste(t *testing.T, line string) {
	t.Helper()
	clitest.OK(t, arguments(line)...)
}

// arguments are those of a command line, as a shell splits it.
func arguments(line string) (args []string) {
	for i, part := range strings.Split(strings.TrimPrefix(line, "postrider "), "'") {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	return args
}

// later makes what the outbox has recorded older by some seconds.
func later(t *testing.T, url string, seconds int, columns ...string) {
	t.Helper()
	o := clitest.OpenOutbox(t, url)
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		_, err := o.DB.Exec(fmt.Sprintf("UPDATE postrider_%s SET %s = %[2]s - %d", table, name, seconds*1_000_000))
		clitest.Must(t, err)
	}
}

func TestDoctorOfAHealthyStore(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	r, code := examine(t, "--store", url)
	for _, result := range r.Results {
		if result.Outcome != doctor.Passed && result.Check != "db.disk" {
			t.Errorf("%+v", result)
		}
	}
	if code != program.ExitDone && r.Count(doctor.Faulty) == 0 {
		t.Errorf("exit code %d", code)
	}
	clitest.Contains(t, clitest.OK(t, "doctor", "schema", "--store", url, "--all"), "PASSED           schema.version", "2 checks: 0 faults, 0 warnings, 0 could not check, 2 passed")
	clitest.Fails(t, program.ExitUsage, `there is no check "db.clok"; there are schema.version, `, "doctor", "db.clok", "--store", url)
	clitest.Fails(t, program.ExitUsage, "--timeout must be positive", "doctor", "--timeout", "-1s", "--store", url)
}

func TestDoctorOfAMissingSchema(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.OK(t, "migrate", "down", "--to", "5", "--yes", "--store", url)
	f := found(t, url, "schema.version")
	if f.Level != doctor.Fault {
		t.Errorf("%+v", f)
	}
	paste(t, f.Fix[0].Command)
	passes(t, url, "schema.version")
}

func TestDoctorFindsARelayWithoutProcess(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "it's", clitest.Delivered)
	clitest.PublishKeys(t, url, "order/2")
	passes(t, url, "relay.no_process")
	later(t, url, 120, "log.created_at", "relays.seen_at")
	if f := found(t, url, "relay.no_process"); f.Level != doctor.Fault || f.Target != "it's" {
		t.Errorf("%+v", f)
	}
	if r := clitest.Run(t, "doctor", "--store", url); r.Code != program.ExitNo || !strings.Contains(r.Out, "FAULT            relay.no_process\n") {
		t.Errorf("code %d\n%s", r.Code, r.Out)
	}
	clitest.OK(t, "outbox", "remove", "it's", "--because", "test", "--yes", "--store", url)
	passes(t, url, "relay.no_process")
}

func TestDoctorFindsHeldKeysAndDeadLetters(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	passes(t, url, "relay.held")
	later(t, url, 600, "held.since")
	found(t, url, "relay.held") // TestFixOfAHeldKey: until it is delivered

	url = clitest.WithDead(t)
	f := found(t, url, "relay.dead")
	if f.Level != doctor.Warning || !strings.Contains(f.Message, "3 open dead letters") {
		t.Errorf("%+v", f)
	}
	if _, code := examine(t, "relay.dead", "--store", url); code != program.ExitDone {
		t.Errorf("a warning ends with %d", code)
	}
	if _, code := examine(t, "relay.dead", "--store", url, "--strict"); code != program.ExitNo {
		t.Errorf("a warning with --strict ends with %d", code)
	}
	paste(t, f.Fix[0].Command)
	paste(t, f.Fix[1].Command)
	passes(t, url, "relay.dead")
}

// TestDoctorFindsAnOldPause: a pause silences what it explains, and is reported when it has lasted for a day.
func TestDoctorFindsAnOldPause(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	clitest.PublishKeys(t, url, "order/2")
	later(t, url, 120, "log.created_at", "relays.seen_at")
	found(t, url, "relay.no_process")
	clitest.OK(t, "relay", "pause", "to-nats", "--because", "test", "--store", url)
	passes(t, url, "relay.no_process")
	passes(t, url, "relay.paused")
	later(t, url, 90_000, "records.at")
	f := found(t, url, "relay.paused")
	if f.Level != doctor.Warning || f.Target != "to-nats" {
		t.Errorf("%+v", f)
	}
	paste(t, f.Fix[0].Command)
	passes(t, url, "relay.paused")
	clitest.OK(t, "relay", "pause", "to-nats", "--for", "720h", "--because", "test", "--store", url)
	later(t, url, 90_000, "records.at")
	passes(t, url, "relay.paused")
}

// live makes a relay alive for an hour, with the lease of every partition if it holds them.
func live(t *testing.T, o *backend.Outbox, name string, destination store.Destination, holds bool) {
	t.Helper()
	owner := clitest.Tester
	owner.Destination = destination
	_, err := o.Heartbeat(context.Background(), name, owner, 3_600_000_000_000)
	clitest.Must(t, err)
	if holds {
		req := clitest.Acquire(0, 1, 2, 3, 4, 5, 6, 7)
		req.TTL = 3_600_000_000_000
		_, err = o.Acquire(context.Background(), name, owner, req)
		clitest.Must(t, err)
	}
}

func TestDoctorFindsPartitionsAndStalls(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	clitest.PublishKeys(t, url, "order/1")
	clitest.SettleAll(t, o, "to-nats", clitest.Delivered)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	live(t, o, "to-nats", store.Destination{}, false)
	later(t, url, 60, "log.created_at")
	found(t, url, "relay.unowned")
	passes(t, url, "relay.stalled")
	live(t, o, "to-nats", store.Destination{}, true)
	passes(t, url, "relay.unowned")
	later(t, url, 600, "log.created_at", "cursors.settled_at")
	if f := found(t, url, "relay.stalled"); f.Level != doctor.Fault {
		t.Errorf("%+v", f)
	}
	clitest.SettleAll(t, o, "to-nats", clitest.Delivered)
	passes(t, url, "relay.stalled")
}

func TestDoctorFindsADestinationThatIsDown(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	down := store.Destination{State: store.DestinationDown, For: 60_000_000_000, Error: "dial tcp 10.1.2.3:4222: connection refused"}
	live(t, o, "to-nats", down, true)
	if f := found(t, url, "destination"); f.Level != doctor.Fault || strings.Contains(f.Message, "10.1.2.3") {
		t.Errorf("%+v", f)
	}
	live(t, o, "to-nats", store.Destination{State: store.DestinationUp}, true)
	r, _ := examine(t, "destination", "--store", url)
	if len(r.Findings()) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestDoctorFindsUnhandledAndUntaken(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	clitest.PublishKeys(t, url, "order/1")
	clitest.SettleAll(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
		s.Parked = append(s.Parked, store.ParkOutcome{Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkUnhandled, After: 1})
		s.Held = append(s.Held, store.HeldKey{Key: r.Message.Key, Sequence: r.Message.Sequence, Reason: store.ParkUnhandled, After: 1})
	})
	passes(t, url, "relay.unhandled")
	later(t, url, 600, "parked.parked_at")
	found(t, url, "relay.unhandled")
	clitest.SettleDue(t, o, "to-nats", clitest.DeliveredAgain)
	passes(t, url, "relay.unhandled")
}

func TestDoctorFindsMissingMaintenance(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	live(t, o, "to-nats", store.Destination{}, true)
	passes(t, url, "db.maintenance")
	later(t, url, 7200, "relays.started_at")
	f := found(t, url, "db.maintenance")
	if f.Level != doctor.Fault || !strings.HasPrefix(f.Fix[0].Command, "postrider relay ") {
		t.Errorf("%+v", f)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	r := clitest.Start(t, nil, append(arguments(f.Fix[0].Command), "--publisher", hook(server.URL))...)
	eventually(t, r, func() bool { return examineOne(t, url, "db.maintenance").Outcome == doctor.Passed })
	r.End(t)
}

// TestDoctorOfASilentDestination: a broker that accepts connections and does not answer is a fault of its relay, whoever notices first
// that time is up: the check or its client.
func TestDoctorOfASilentDestination(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for _, publisher := range []string{
		"nats://%s?stream=SHOP", "kafka://%s", "amqp://%s/?exchange=e", "redis://%s",
	} {
		t.Run(publisher, func(t *testing.T) {
			t.Parallel()
			config := clitest.WriteFile(t, fmt.Sprintf("store: {url: %q}\nrelays:\n  - {name: to-broker, publisher: %q}\n", url,
				fmt.Sprintf(publisher, l.Addr())))
			r, code := examine(t, "destination.to-broker", "--config", config, "--timeout", "20s")
			if code != program.ExitNo || r.Results[0].Outcome != doctor.Faulty || !strings.HasSuffix(r.Findings()[0].Message, " cannot be used: it does not answer.") {
				t.Errorf("code %d: %+v", code, r.Results[0])
			}
		})
	}
}

// TestDoctorOfASilentDatabase: a server that accepts connections and answers nothing, as one that was stopped does, ends the command in time.
func TestDoctorOfASilentDatabase(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for _, store := range []string{"postgres://u@%s/shop?sslmode=disable", "mysql://u@%s/shop"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			r := clitest.Run(t, "doctor", "--store", fmt.Sprintf(store, l.Addr()), "--timeout", "2s")
			if took := time.Since(began); r.Code != program.ExitFailed || took > time.Minute {
				t.Errorf("code %d after %s: %s%s", r.Code, took, r.Out, r.Err)
			}
			if !strings.Contains(r.Out, "no answer within ") || strings.Contains(r.Out, "within 10s") {
				t.Errorf("it waited for 2s, and says: %s", r.Out)
			}
			clitest.Contains(t, r.Out, "COULD NOT CHECK  schema.version\n  connect to "+fmt.Sprintf(store, l.Addr()), "\nCOULD NOT CHECK  db.clock\n  not reached: the store could not be opened\n",
				"\nCOULD NOT CHECK  destination\n  not reached", " could not check, 0 passed")
			r = clitest.Run(t, "doctor", "relay.dead", "relay.held", "--json", "--store", fmt.Sprintf(store, l.Addr()), "--timeout", "2s")
			var report doctor.Report
			clitest.Must(t, json.Unmarshal([]byte(r.Out), &report))
			if r.Code != program.ExitFailed || report.Count(doctor.CouldNotCheck) != 2 || !strings.Contains(report.Results[0].Reason, l.Addr().String()) {
				t.Errorf("code %d: %+v", r.Code, report)
			}
		})
	}
}

// TestFixesCanBePasted: a command line is left out if a shell, or the command, would take a key for something else.
func TestFixesCanBePasted(t *testing.T) {
	t.Parallel()
	for key, pasted := range map[string]bool{"o'rder/$(id) 1": true, "-order": false, "order\u202e1": false} {
		url := clitest.NewOutbox(t)
		clitest.PublishKeys(t, url, key)
		clitest.Hold(t, url, "to-nats")
		later(t, url, 600, "held.since")
		if f := found(t, url, "relay.held").Fix[1]; (f.Command != "") != pasted || f.Text == "" {
			t.Errorf("key %q: %+v", key, f)
		} else if pasted {
			clitest.OK(t, "held", "retry", key, "--relay", "to-nats", "--store", url)
		}
	}
}
