package prometheustest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

// Alertmanager is a running Alertmanager, with what its receivers were sent.
type Alertmanager struct {
	address string

	mu   sync.Mutex
	sent []Notification
}

// Notification is an alert as a receiver gets it.
type Notification struct {
	Receiver string `json:"-"`
	// Status is "firing" or "resolved".
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// StartAlertmanager starts an Alertmanager, which ends with the test. In its configuration, whose times are shortened, receiver is the
// address of the receivers to replace.
func StartAlertmanager(t testing.TB, config, receiver string) *Alertmanager {
	t.Helper()
	dir, port := t.TempDir(), servertest.Port(t)
	a := &Alertmanager{address: fmt.Sprintf("127.0.0.1:%d", port)}
	receivers := httptest.NewServer(a)
	t.Cleanup(receivers.Close)
	write(t, filepath.Join(dir, "alertmanager.yml"), strings.ReplaceAll(Shortened(t, config), receiver, receivers.URL))
	run(t, servertest.Get(t, servertest.AlertmanagerBin), "--config.file="+filepath.Join(dir, "alertmanager.yml"),
		"--storage.path="+filepath.Join(dir, "data"), "--web.listen-address="+a.address, "--cluster.listen-address=")
	return a
}

// ServeHTTP implements http.Handler: it is all receivers.
func (a *Alertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Receiver string         `json:"receiver"`
		Alerts   []Notification `json:"alerts"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range body.Alerts {
		n.Receiver = body.Receiver
		a.sent = append(a.sent, n)
	}
}

// Sent returns what was sent about alerts with a status and labels; those without a value count in any case.
func (a *Alertmanager) Sent(status string, labels map[string]string) (found []Notification) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.sent {
		all := status == "" || n.Status == status
		for name, value := range labels {
			all = all && (value == "" || n.Labels[name] == value)
		}
		if all {
			found = append(found, n)
		}
	}
	return found
}
