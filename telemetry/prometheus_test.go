package telemetry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/telemetry/internal/dashboard"
)

// TestDashboardsAndAlertsInPrometheus: in a Prometheus that scrapes a system under load, each query of the dashboards returns data; alerts
// fire under their faults, and end after what their runbooks say; and nothing fires for a relay that is paused meanwhile, or whose
// processes are replaced one by one.
func TestDashboardsAndAlertsInPrometheus(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := startPrometheus(t, s.providers.Handler)
	p.await("data of the dashboards", p.emptyPanel)
	faults := []string{
		`alertname="PostriderStoreUnreachable",store="other"`, `alertname="PostriderDestinationDown",relay="to-broker"`,
		`alertname="PostriderRelayNotRunning",relay="mails"`, `alertname="PostriderKeyHeld",relay="keys"`,
		`alertname="PostriderDeadLettersNew",relay="keys"`, `alertname="PostriderUnrouted"`, `alertname="PostriderSagaStuck",saga="fulfilment"`,
	}
	for _, of := range faults[:6] {
		if p.count(fired(of)) > 0 {
			t.Errorf("%s fired before its fault", of)
		}
	}
	if _, err := pause.New(s.store).Pause(t.Context(), pause.Request{Relay: "paused", By: "ann", Reason: "maintenance"}); err != nil {
		t.Fatal(err)
	}
	s.storeDown.Store(true)
	s.brokerDown.Store(true)
	s.stopMails()
	s.send("keys", "bad", "refused")
	s.send("keys", "other", "rejected")
	s.send("nobody", "k", "t")
	replaced := make(chan struct{})
	go func() { defer close(replaced); s.replaceProcesses(3) }()
	fire := append(faults, `alertname="PostriderDeliveryLate",relay="mails"`)
	p.await("alerts to fire", func() string { return p.missing(fire, fired, true) })
	<-replaced

	// What the runbooks say.
	s.storeDown.Store(false)
	s.brokerDown.Store(false)
	s.startMails()
	skip := store.Decision{Relay: "keys", Key: "bad", Verb: store.VerbSkip, By: "ann", Reason: "known"}
	if _, err := held.Decide(t.Context(), s.store, skip); err != nil {
		t.Fatal(err)
	}
	p.await("alerts to end", func() string { return p.missing(faults[:6], firing, false) })
	p.await("messages to wait for the paused relay for longer than for any alert", func() string {
		if p.count(`postrider_oldest_undelivered_seconds{relay="paused"} > 30`) == 0 {
			return "the oldest has waited for less than 30 s"
		}
		return ""
	})
	for _, name := range []string{"paused", "rolling"} {
		if n := p.count(fired(`relay="` + name + `"`)); n > 0 {
			t.Errorf("%d alerts fired for the relay %s", n, name)
		}
	}
}

// emptyPanel returns a query of the dashboards without data, "" if there is none.
func (p *prometheus) emptyPanel() string {
	p.t.Helper()
	for _, d := range dashboard.All() {
		for _, panel := range d.Panels {
			for _, q := range panel.Queries {
				if p.count(expression(q)) == 0 {
					return d.Title + ", " + panel.Title + ": " + q.Expr
				}
			}
		}
	}
	return ""
}

// firing is a query for alerts that fire now, and fired for those that have.
func firing(of string) string { return `ALERTS{alertstate="firing",` + of + `}` }

func fired(of string) string { return "count_over_time(" + firing(of) + "[1h])" }

// prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// faster is by how much the times of the alerts are divided: two minutes are four seconds.
const faster = 30

var (
	ranges     = regexp.MustCompile(`\[(\d+)([mhd])\]`)
	waits      = regexp.MustCompile(`(for|interval): (\d+)([sm])`)
	thresholds = regexp.MustCompile(`(_seconds(?:\{[^}]*\})?\)) > (\d+)`)
)

// shortened returns rules whose ranges, waits and thresholds of seconds are divided. The numbers of evaluations in a range stay the same.
func shortened(t *testing.T, rules string) string {
	t.Helper()
	seconds := map[string]int{"s": 1, "m": 60, "h": 3600, "d": 86400}
	times := func(n, unit string) string {
		v, err := strconv.Atoi(n)
		must(t, err)
		return fmt.Sprintf("%dms", v*seconds[unit]*1000/faster)
	}
	rules = ranges.ReplaceAllStringFunc(rules, func(r string) string {
		m := ranges.FindStringSubmatch(r)
		return "[" + times(m[1], m[2]) + "]"
	})
	rules = waits.ReplaceAllStringFunc(rules, func(r string) string {
		m := waits.FindStringSubmatch(r)
		return m[1] + ": " + times(m[2], m[3])
	})
	return thresholds.ReplaceAllStringFunc(rules, func(r string) string {
		m := thresholds.FindStringSubmatch(r)
		v, err := strconv.Atoi(m[2])
		must(t, err)
		return fmt.Sprintf("%s > %g", m[1], float64(v)/faster)
	})
}

// startPrometheus starts a Prometheus that scrapes a handler, with the shipped alerts in shorter time.
func startPrometheus(t *testing.T, metrics http.Handler) *prometheus {
	t.Helper()
	endpoint := httptest.NewServer(metrics)
	t.Cleanup(endpoint.Close)
	dir, port := t.TempDir(), servertest.Port(t)
	must(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(shortened(t, readFile(t, rulesFile))), 0o600))
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\nscrape_configs:\n"+
		"  - {job_name: postrider, static_configs: [{targets: [%q]}]}\n", strings.TrimPrefix(endpoint.URL, "http://"))
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	cmd := exec.CommandContext(context.Background(), servertest.Get(t, servertest.PrometheusBin), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return &prometheus{t, fmt.Sprintf("http://127.0.0.1:%d", port)}
}

// count returns the number of series that a query returns now, 0 while Prometheus starts.
func (p *prometheus) count(expr string) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	must(p.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return 0
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		p.t.Fatalf("query %s: %v %s", expr, err, answer.Error)
	}
	return len(answer.Data.Result)
}

// missing returns an alert whose query has no result, or has one, "" if there is none.
func (p *prometheus) missing(alerts []string, query func(of string) string, some bool) string {
	p.t.Helper()
	for _, of := range alerts {
		if p.count(query(of)) > 0 != some {
			return of
		}
	}
	return ""
}

// await waits until missing returns "".
func (p *prometheus) await(what string, missing func() string) {
	p.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		left := missing()
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waiting for %s, still: %s", what, left)
		}
	}
}
