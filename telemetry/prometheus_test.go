package telemetry_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/prometheustest"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/internal/dashboard"
	"github.com/postrider/postrider/telemetry/internal/scenario"
)

// TestDashboardsAndAlertsInPrometheus: in a Prometheus that scrapes two processes of a system under load, each query of the dashboards
// returns data, and the right numbers. Each alert fires under its fault, and ends after what its runbook says; receivers of Alertmanager
// are told both, with the runbook. No alert fires for a relay that is paused, or whose processes are replaced one by one, and none says
// that a relay with a closed gate is stalled.
func TestDashboardsAndAlertsInPrometheus(t *testing.T) {
	t.Parallel()
	w, second := newWorld(t, telemetry.Config{}), newWorld(t, telemetry.Config{})
	s := scenario.Start(t, w.Telemetry)
	s.Watch(second.Telemetry)
	targets := &endpoints{}
	alerts := prometheustest.StartAlertmanager(t, readFile(t, "../deploy/prometheus/alertmanager.example.yml"), "http://127.0.0.1:8080")
	p := &prometheus{t, alerts, prometheustest.Start(t, prometheustest.Config{
		Rules: readFile(t, rulesFile), Targets: []http.Handler{targets.of(w), targets.of(second)}, Alerts: alerts,
	})}
	faults := s.Faults()
	prometheustest.Await(t, "deliveries", func() string {
		if p.Count(`postrider_delivered_total{relay="to-broker"} > 50`) == 0 {
			return "no process has delivered 50 messages"
		}
		return ""
	})
	p.wantNoneBefore(faults)
	for _, f := range faults {
		f.Provoke()
	}
	prometheustest.Await(t, "alerts to fire", func() string { return p.silent(faults) })
	prometheustest.Await(t, "data of the dashboards", p.emptyPanel)
	prometheustest.Await(t, "right numbers", p.wrongNumber)
	prometheustest.Await(t, "messages to wait for the paused relay for longer than for any alert", func() string {
		if p.Count(`postrider_oldest_undelivered_seconds{relay="paused"} > 45`) == 0 {
			return "the oldest has waited for less than 45 s"
		}
		return ""
	})
	p.wantSilence(faults)
	for _, f := range faults {
		if f.Fix != nil {
			f.Fix()
		}
	}
	prometheustest.Await(t, "alerts to end", func() string { return p.notEnded(faults) })

	absent := []scenario.Fault{{Alerts: []scenario.Alert{{Name: "PostriderAbsent"}}}}
	targets.gone.Store(true)
	prometheustest.Await(t, "an alert without a target", func() string { return p.silent(absent) })
	targets.gone.Store(false)
	prometheustest.Await(t, "its end", func() string { return p.notEnded(absent) })
	p.wantAll(append(faults, absent...))
}

// endpoints are those of processes, which can all be gone.
type endpoints struct{ gone atomic.Bool }

func (e *endpoints) of(w *world) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if e.gone.Load() {
			http.Error(rw, "gone", http.StatusServiceUnavailable)
			return
		}
		w.providers.Handler.ServeHTTP(rw, r)
	})
}

// prometheus is a Prometheus with its Alertmanager.
type prometheus struct {
	t      *testing.T
	alerts *prometheustest.Alertmanager
	*prometheustest.Server
}

// emptyPanel returns a query of the dashboards without data, "" if there is none.
func (p *prometheus) emptyPanel() string {
	p.t.Helper()
	for _, d := range dashboard.All() {
		for _, panel := range d.Panels {
			for _, q := range panel.Queries {
				if p.Count(expression(q)) == 0 {
					return d.Title + ", " + panel.Title + ": " + q.Expr
				}
			}
		}
	}
	return ""
}

// rightNumbers are what panels show under the faults, although two processes export them: the value of the series with a label.
var rightNumbers = []struct {
	panel, label, value string
	want                float64
}{
	{"Destination up", "relay", "to-broker", 0},
	{"Processes", "relay", "mails", 0},
	{"Processes", "relay", "paused", 1},
	{"Held keys", "relay", "keys", 1},
	{"Open dead letters", "relay", "keys", 1},
	{"Open dead letters", "relay", "surge", 100},
	{"Paused", "relay", "paused", 1},
	{"Paused", "relay", "keys", 0},
	{"Gate closed", "relay", "gated", 1},
	{"Partitions without an owner", "relay", "unowned", 2},
	{"Partitions without an owner", "relay", "keys", 0},
	{"Store up", "store", "other", 0},
	{"Store up", "store", "main", 1},
	{"Connected", "consumer", "billing", 0},
	{"Connected", "consumer", "archive", 1},
	{"Stuck", "saga", "fulfilment", 1},
	{"Without a definition", "saga", "legacy", 1},
	{"Without a definition", "saga", "fulfilment", 0},
	{"Active", "saga", "legacy", 1},
	{"Breakers that are not closed", "state", "open", 1},
}

// wrongNumber returns a panel that shows another number than is right, "" if there is none.
func (p *prometheus) wrongNumber() string {
	p.t.Helper()
	for _, want := range rightNumbers {
		highest := -1.0
		for _, v := range p.Query(expression(queryOf(p.t, want.panel))) {
			if v.Labels[want.label] == want.value {
				highest = max(highest, v.Value)
			}
		}
		if highest != want.want {
			return fmt.Sprintf("%s of %s is %v, want %v", want.panel, want.value, highest, want.want)
		}
	}
	return ""
}

// queryOf returns the first query of a panel.
func queryOf(t *testing.T, title string) dashboard.Query {
	t.Helper()
	for _, d := range dashboard.All() {
		for _, panel := range d.Panels {
			if panel.Title == title {
				return panel.Queries[0]
			}
		}
	}
	t.Fatalf("there is no panel %s", title)
	return dashboard.Query{}
}

// of is the part of a query that selects an alert.
func of(a scenario.Alert) string {
	selected := []string{`alertstate="firing"`}
	if a.Name != "" {
		selected = append(selected, fmt.Sprintf("alertname=%q", a.Name))
	}
	if a.Label != "" {
		selected = append(selected, fmt.Sprintf("%s=%q", a.Label, a.Value))
	}
	return "ALERTS{" + strings.Join(selected, ",") + "}"
}

// fired is a query for an alert that fires, or has.
func fired(a scenario.Alert) string { return "count_over_time(" + of(a) + "[1h])" }

// byTime matches alerts that a slow machine can cause.
var byTime = regexp.MustCompile("Late|TimeOuts|Slow|Low|Stalled|Held|Unowned")

// wantNoneBefore checks that no alert has fired before its fault.
func (p *prometheus) wantNoneBefore(faults []scenario.Fault) {
	p.t.Helper()
	for _, f := range faults {
		for _, a := range f.Alerts {
			if !byTime.MatchString(a.Name) && p.Count(fired(a)) > 0 {
				p.t.Errorf("%s fired before its fault", a.Name)
			}
		}
	}
}

// silent returns an alert that has not fired.
func (p *prometheus) silent(faults []scenario.Fault) string {
	p.t.Helper()
	for _, f := range faults {
		for _, a := range f.Alerts {
			if p.Count(fired(a)) == 0 || !p.told("firing", a) {
				return f.Name + ": " + a.Name
			}
		}
	}
	return ""
}

// notEnded returns an alert that still fires, or whose receiver does not know that it has ended.
func (p *prometheus) notEnded(faults []scenario.Fault) string {
	p.t.Helper()
	for _, f := range faults {
		for _, a := range f.Alerts {
			if p.Count(of(a)) > 0 || !p.told("resolved", a) {
				return f.Name + ": " + a.Name
			}
		}
	}
	return ""
}

// wantSilence checks that no alert fires under what operators do, and that nobody is told of one.
func (p *prometheus) wantSilence(faults []scenario.Fault) {
	p.t.Helper()
	for _, f := range faults {
		if f.Silent == (scenario.Alert{}) {
			continue
		}
		sent := p.alerts.Sent("", map[string]string{"alertname": f.Silent.Name, f.Silent.Label: f.Silent.Value})
		if found := p.Query(fired(f.Silent)); len(found) > 0 || len(sent) > 0 {
			p.t.Errorf("%s: alerts fired: %v, receivers were told %v", f.Name, found, sent)
		}
	}
}

// inhibited are the alerts that another one explains, and that of the severity info, of which receivers need not be told.
var inhibited = regexp.MustCompile("^Postrider(DeliveryLate|DeliveryLateSlowBurn|DeadLettersNew|SagaTimeOuts|DeadLettersUnresolved)$")

// told reports whether a receiver was told of an alert, and checks that it was the right one, and has the link of the runbook.
func (p *prometheus) told(status string, a scenario.Alert) bool {
	p.t.Helper()
	labels := map[string]string{"alertname": a.Name}
	if a.Label != "" {
		labels[a.Label] = a.Value
	}
	sent := p.alerts.Sent(status, labels)
	for _, n := range sent {
		if want := map[string]string{"page": "pages", "ticket": "tickets"}[n.Labels["severity"]]; n.Receiver != want {
			p.t.Errorf("%s of severity %s was sent to %s", a.Name, n.Labels["severity"], n.Receiver)
		}
		file, known := strings.CutPrefix(n.Annotations["runbook_url"], "https://github.com/postrider/postrider/blob/main/")
		if _, err := os.Stat(filepath.Join("..", file)); err != nil || !known {
			p.t.Errorf("%s has the runbook %q: %v", a.Name, n.Annotations["runbook_url"], err)
		}
	}
	return len(sent) > 0 || inhibited.MatchString(a.Name)
}

// wantAll checks that there is a fault for each alert.
func (p *prometheus) wantAll(faults []scenario.Fault) {
	p.t.Helper()
	tested := make(map[string]bool)
	for _, f := range faults {
		for _, a := range f.Alerts {
			tested[a.Name] = true
		}
	}
	for _, m := range alertNames.FindAllStringSubmatch(readFile(p.t, rulesFile), -1) {
		switch {
		case tested[m[1]]:
		case m[1] == "PostriderDiskFilling":
			p.t.Log("PostriderDiskFilling was not provoked: this user may not mount a file system")
		default:
			p.t.Errorf("no fault provokes %s", m[1])
		}
	}
}
