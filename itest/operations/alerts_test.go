package operations_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/prometheustest"
)

// receiver is a webhook that rejects some messages, and fails at others.
type receiver struct {
	*httptest.Server
	rejects atomic.Bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		switch {
		case strings.Contains(string(body), `"failing"`):
			http.Error(w, "not now", http.StatusInternalServerError)
		case r.rejects.Load() && q.URL.Path == "/hooks":
			http.Error(w, "never", http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// relay is the configuration of a relay of the topic with its name, whose messages the receiver gets.
func (r *receiver) relay(name string) string {
	return configured(name, r.URL+"/"+name+"#plain_http=true&allow=127.0.0.1&keep_attempts=0s&secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
}

// configured is the configuration of a relay of the topic with its name.
func configured(name, publisher string) string {
	return fmt.Sprintf("{name: %s, topics: [%[1]s], publisher: %q, delivery_target: %s, max_attempts: 1000, backoff_max: 1s}", name, publisher, cmp.Or(targets[name], "1m"))
}

// targets are those that differ from the default.
var targets = map[string]string{"mails": "5s"}

// alert is an alert with the relay or store that it is about.
type alert struct{ name, label, value string }

func (a alert) String() string {
	return fmt.Sprintf("ALERTS{alertstate=\"firing\",alertname=~%q,%s=%q}", a.name, a.label, a.value)
}

// awaitAlerts waits until all of the alerts fire, or none.
func awaitAlerts(t *testing.T, p *prometheustest.Server, what string, firing bool, alerts ...alert) {
	t.Helper()
	prometheustest.Await(t, what, func() (left []string) {
		for _, a := range alerts {
			if (p.Count(a.String()) > 0) != firing {
				left = append(left, a.String())
			}
		}
		return left
	})
}

// inhibited are the alerts that another one explains, of which receivers need not be told.
var inhibited = []string{"PostriderDeliveryLate", "PostriderDeadLettersNew"}

// awaitNotifications waits until receivers were told of alerts, and checks that they were the right ones, and got the link of the runbook.
func awaitNotifications(t *testing.T, told *prometheustest.Alertmanager, status string, alerts []alert) {
	t.Helper()
	sent := func(a alert) []prometheustest.Notification {
		return told.Sent(status, map[string]string{"alertname": a.name, a.label: a.value})
	}
	prometheustest.Await(t, "notifications: "+status, func() (left []string) {
		for _, a := range alerts {
			if len(sent(a)) == 0 && !slices.Contains(inhibited, a.name) {
				left = append(left, a.name)
			}
		}
		return left
	})
	for _, a := range alerts {
		for _, n := range sent(a) {
			if want := map[string]string{"page": "pages", "ticket": "tickets"}[n.Labels["severity"]]; n.Receiver != want {
				t.Errorf("%s of severity %s was sent to %s", a.name, n.Labels["severity"], n.Receiver)
			}
			file, known := strings.CutPrefix(n.Annotations["runbook_url"], "https://github.com/postrider/postrider/blob/main/")
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil || !known {
				t.Errorf("%s has the runbook %q: %v", a.name, n.Annotations["runbook_url"], err)
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	must(t, err)
	return string(text)
}

// wantSilence checks that alerts have not fired so far.
func wantSilence(t *testing.T, p *prometheustest.Server, alerts ...alert) {
	t.Helper()
	for _, a := range alerts {
		if n := p.Count("count_over_time(" + a.String() + "[30m])"); n > 0 {
			t.Errorf("%s has fired", a)
		}
	}
}

// deployment is one of a relay, all of whose processes ended and started again, three times.
type deployment struct {
	t            *testing.T
	relay        string
	processes    []*program
	began, ended time.Time
}

func deploy(t *testing.T, relay string, processes ...*program) deployment {
	t.Helper()
	d := deployment{t: t, relay: relay, processes: processes, began: time.Now()}
	for range 3 {
		for _, one := range processes {
			must(t, one.Stop())
			one.restart()
		}
	}
	d.ended = time.Now()
	return d
}

// wantSilence checks that no alert fires because of the deployment. Alerts fire after ten seconds here instead of five minutes, and scrapes are
// eight seconds apart: with a machine that stands still for a moment, partitions may seem to be without an owner for so long. The relay is
// then deployed again, up to three times in all: one of them must be silent.
func (d deployment) wantSilence(p *prometheustest.Server) {
	d.t.Helper()
	for deployments := 1; ; deployments++ {
		if d.silent(p) {
			return
		}
		if deployments == 3 {
			d.t.Errorf("an alert fires for %s at each deployment", d.relay)
			return
		}
		d = deploy(d.t, d.relay, d.processes...)
	}
}

// silent waits until Prometheus knows the state after the deployment and no alert is pending, and says whether one has fired since the deployment began.
func (d deployment) silent(p *prometheustest.Server) bool {
	d.t.Helper()
	of := fmt.Sprintf("{relay=%q}", d.relay)
	prometheustest.Await(d.t, "the end of the deployment to be known", func() (left []string) {
		known := fmt.Sprintf("min(timestamp(postrider_partitions_unowned%s)) > %d", of, d.ended.Unix())
		for what, is := range map[string]bool{known: p.Count(known) == 1, "no alert": p.Count("ALERTS"+of) == 0} {
			if !is {
				left = append(left, what)
			}
		}
		return left
	})
	fired := p.Query(fmt.Sprintf("count_over_time(%s[%ds])", alert{"Postrider.*", "relay", d.relay}, 1+int(time.Since(d.began).Seconds())))
	for _, f := range fired {
		d.t.Logf("%s fired at a deployment", f.Labels["alertname"])
	}
	return len(fired) == 0
}

// TestAlertsOnServers: with PostgreSQL, JetStream, a webhook and processes of the program, what is killed, stopped, locked or rejected makes
// its alerts fire, and what the runbooks say ends them. Receivers of Alertmanager are told both, with the runbook. Nothing fires for a relay that is paused or deployed again, and none says that a
// relay is stalled whose broker is down. Times of the rules are shortened.
//
// size: one history.
func TestAlertsOnServers(t *testing.T) {
	t.Parallel()
	w, hooks := newWorld(t), newReceiver(t)
	w.configure(configured("orders", w.nats.URL+"?stream=ORDERS"), hooks.relay("hooks"), hooks.relay("mails"), hooks.relay("stalled"),
		hooks.relay("unowned"), hooks.relay("paused"), hooks.relay("rolling"))
	mails, unowned, rolling, next := w.relays("mails"), w.relays("unowned"), w.relays("rolling"), w.relays("rolling")
	processes := []*program{mails, unowned, rolling, next, w.relays("orders,hooks,paused"), w.relays("stalled")}
	unhang := w.consumers()
	told := prometheustest.StartAlertmanager(t, readFile(t, "deploy/prometheus/alertmanager.example.yml"), "http://127.0.0.1:8080")
	p := prometheustest.Start(t, prometheustest.Config{Rules: readFile(t, "deploy/prometheus/postrider.rules.yml"), Targets: w.targets, Alerts: told})
	w.publishing(true, "orders", "mails", "stalled", "paused", "rolling", "unowned", "hooks")
	w.publish()
	faults := []alert{
		{"PostriderDestinationDown", "relay", "orders"}, {"PostriderRelayNotRunning", "relay", "mails"}, {"PostriderDeliveryLate", "relay", "mails"},
		{"PostriderRelayStalled", "relay", "stalled"}, {"PostriderPartitionUnowned", "relay", "unowned"}, {"PostriderKeyHeld", "relay", "hooks"},
		{"PostriderConsumerNotReading", "consumer", "billing"}, {"PostriderConsumerStalled", "consumer", "ledger"},
		{"PostriderDeadLettersNew", "relay", "hooks"}, {"PostriderDeadLettersSurge", "relay", "hooks"}, {"PostriderUnrouted", "store", "main"},
	}
	prometheustest.Await(t, "relays to deliver", func() []string {
		if n := p.Count("max by (relay) (postrider_delivered_total) > 0"); n < 7 {
			return []string{fmt.Sprintf("%d of 7 relays deliver", n)}
		}
		return nil
	})
	wantSilence(t, p, alert{"Postrider.*", "store", "main"})

	must(t, w.nats.Stop())
	must(t, mails.Kill())
	must(t, w.send(t.Context(), "hooks", "failing"))
	hooks.rejects.Store(true)
	w.publishing(true, "nobody")
	unstall := w.lockLeases("stalled")
	must(t, unowned.Stop())
	allow := w.refuseLeases("unowned")
	unowned.restart()
	w.postrider("relay", "pause", "paused", "--because", "a test")
	deployed := deploy(t, "rolling", rolling, next)
	awaitAlerts(t, p, "alerts of faults", true, faults...)
	awaitNotifications(t, told, "firing", faults)
	wantSilence(t, p, alert{"Postrider.*", "relay", "paused"}, alert{"PostriderRelayStalled", "relay", "orders"})
	deployed.wantSilence(p)

	unhang()
	w.startNATS(portOf(t, w.nats.URL))
	mails.restart()
	hooks.rejects.Store(false)
	w.publishing(false, "nobody")
	unstall()
	allow()
	w.postrider("held", "skip", "failing", "--relay", "hooks", "--because", "a test")
	w.postrider("relay", "resume", "paused")
	awaitAlerts(t, p, "alerts to end", false, faults...)
	awaitNotifications(t, told, "resolved", faults)

	down := alert{"PostriderStoreUnreachable", "store", "main"}
	must(t, w.database.Stop())
	awaitAlerts(t, p, "the database to be missed", true, down)
	w.startDatabase()
	awaitAlerts(t, p, "the database to be found", false, down)

	w.absent.Store(true)
	for _, one := range processes {
		must(t, one.Kill())
	}
	awaitAlerts(t, p, "the processes to be missed", true, alert{"PostriderAbsent", "alertname", "PostriderAbsent"})
	mails.restart()
	awaitAlerts(t, p, "a process to be found", false, alert{"PostriderAbsent", "alertname", "PostriderAbsent"})
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	port, err := strconv.Atoi(u.Port())
	must(t, err)
	return port
}
