// Package prometheustest starts Prometheus and Alertmanager for tests of what they are shipped with, in shorter time.
package prometheustest

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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/servertest"
)

// Server is a running Prometheus.
type Server struct {
	t   testing.TB
	url string
}

// Config says what a Prometheus works with.
type Config struct {
	// Rules is the text of a file of rules; their times are shortened.
	Rules string
	// Targets are scraped.
	Targets []http.Handler
	// Alerts is where alerts are sent, nil for nowhere.
	Alerts *Alertmanager
}

// Start starts a Prometheus, which ends with the test.
func Start(t testing.TB, c Config) *Server {
	t.Helper()
	var targets []string
	for _, handler := range c.Targets {
		endpoint := httptest.NewServer(handler)
		t.Cleanup(endpoint.Close)
		targets = append(targets, strconv.Quote(strings.TrimPrefix(endpoint.URL, "http://")))
	}
	dir, port := t.TempDir(), servertest.Port(t)
	config := fmt.Sprintf("global: {scrape_interval: %s, evaluation_interval: %s}\nrule_files: [rules.yml]\nscrape_configs:\n"+
		"  - {job_name: postrider, static_configs: [{targets: [%s]}]}\n", scrapes, evaluations, strings.Join(targets, ", "))
	if c.Alerts != nil {
		config += fmt.Sprintf("alerting:\n  alertmanagers:\n    - static_configs: [{targets: [%q]}]\n", c.Alerts.address)
	}
	write(t, filepath.Join(dir, "rules.yml"), Shortened(t, c.Rules))
	write(t, filepath.Join(dir, "prometheus.yml"), config)
	run(t, servertest.Get(t, servertest.PrometheusBin), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
		"--enable-feature=exemplar-storage")
	return &Server{t, fmt.Sprintf("http://127.0.0.1:%d", port)}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a program until the test ends.
func run(t testing.TB, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), program, args...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", program, log.String())
		}
	})
}

// Value is the value of a series.
type Value struct {
	Labels map[string]string
	Value  float64
}

// Query returns what a query returns now, nothing while Prometheus starts.
func (s *Server) Query(expr string) (values []Value) {
	s.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	s.get("query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			s.t.Fatalf("query %s: %v", expr, err)
		}
		values = append(values, Value{r.Metric, v})
	}
	return values
}

// Exemplars returns the labels of the exemplars of a query in the last hour.
func (s *Server) Exemplars(expr string) (labels []map[string]string) {
	s.t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	now := time.Now()
	s.get("query_exemplars", url.Values{
		"query": {expr}, "start": {now.Add(-time.Hour).Format(time.RFC3339)}, "end": {now.Add(time.Minute).Format(time.RFC3339)},
	}, &data)
	for _, of := range data {
		for _, e := range of.Exemplars {
			labels = append(labels, e.Labels)
		}
	}
	return labels
}

// get reads the data of an answer of the API, none while Prometheus starts.
func (s *Server) get(what string, parameters url.Values, data any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/api/v1/"+what+"?"+parameters.Encode(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return
	}
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		s.t.Fatalf("%s %v: %v %s", what, parameters, err, answer.Error)
	}
}

// Count returns the number of series that a query returns now.
func (s *Server) Count(expr string) int {
	s.t.Helper()
	return len(s.Query(expr))
}

// patience is how long Await waits. On two cores shared with the system under test, the longest wait takes a minute.
const patience = 5 * time.Minute

// Await waits until nothing is missing.
func Await(t testing.TB, what string, missing func() []string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(250 * time.Millisecond) {
		left := missing()
		if len(left) == 0 {
			t.Logf("waited %s for %s", time.Since(began).Round(time.Second), what)
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("waiting for %s, still: %s", what, strings.Join(left, ", "))
		}
	}
}
