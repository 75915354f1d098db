// Package deploy_test checks what is in the folder deploy: the Helm chart, the manifests made from it, and the systemd unit.
package deploy_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

const (
	chart     = "../../deploy/helm/postrider"
	manifests = "../../deploy/kubernetes/postrider.yaml"
	unit      = "../../deploy/systemd/postrider-relay.service"
	schemas   = "testdata/schemas/{{.ResourceKind}}{{.KindSuffix}}.json"
)

var update = flag.Bool("update", false, "write the manifests")

// header begins the plain manifests.
const header = `# The Helm chart in deploy/helm/postrider with its defaults and a ServiceMonitor: go test ./itest/deploy -update writes it.
# The secret "postrider" must exist (docs/operations/install.md), and the job must have ended before the deployment starts.
`

// image is the value without which no chart is rendered.
const image = "image.repository=registry.example.com/postrider"

// values are what the chart is rendered with.
var values = map[string][]string{
	"the plain manifests":           {"--set", image + ",serviceMonitor.enabled=true"},
	"one process, nothing optional": {"--set", image + ",replicas=1,migrate.enabled=false,networkPolicy.enabled=false"},
	"everything":                    {"--values", "testdata/everything.yaml"},
}

// TestChart: the chart is rendered to objects that Kubernetes accepts, whatever is switched on.
func TestChart(t *testing.T) {
	t.Parallel()
	helm := servertest.Get(t, servertest.HelmBin)
	output(t, helm, "lint", "--strict", "--set", image, chart)
	for name, args := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkObjects(t, render(t, helm, args...))
		})
	}
}

// render renders the chart.
func render(t *testing.T, helm string, args ...string) []byte {
	t.Helper()
	return output(t, helm, append([]string{"template", "postrider", chart, "--namespace", "postrider", "--kube-version", "1.37.0"}, args...)...)
}

// checkObjects checks objects against the schemas of Kubernetes.
func checkObjects(t *testing.T, objects []byte) {
	t.Helper()
	check := exec.CommandContext(t.Context(), servertest.Get(t, servertest.KubeconformBin), "-strict", "-schema-location", schemas)
	check.Stdin = bytes.NewReader(objects)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("kubeconform: %v\n%s\n%s", err, out, objects)
	}
}

// TestChartRefusesValues: values that would be ignored, or make a chart that cannot work, are errors.
func TestChartRefusesValues(t *testing.T) {
	t.Parallel()
	helm := servertest.Get(t, servertest.HelmBin)
	for _, wrong := range []string{"replica=3", "replicas=0", "image.repository=", "config.relays=null", "serviceMonitor.enable=true"} {
		out, err := exec.CommandContext(t.Context(), helm, "template", "postrider", chart, "--kube-version", "1.37.0", "--set", image, "--set", wrong).CombinedOutput()
		if err == nil {
			t.Errorf("--set %s was accepted:\n%s", wrong, out)
		}
	}
}

// TestManifests: the plain manifests are those of the chart.
func TestManifests(t *testing.T) {
	t.Parallel()
	want := append([]byte(header), render(t, servertest.Get(t, servertest.HelmBin), values["the plain manifests"]...)...)
	if *update {
		if err := os.WriteFile(manifests, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("deploy/kubernetes/postrider.yaml is not what the chart makes: go test ./itest/deploy -update")
	}
	for _, secret := range []string{"kind: Secret\n", "password:"} {
		if strings.Contains(string(got), secret) {
			t.Errorf("the manifests have %q: secrets are referenced only", secret)
		}
	}
}

// TestSchemaFindsErrors: kubeconform with these schemas refuses a field that does not exist.
func TestSchemaFindsErrors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(manifests)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(text), "readinessProbe:", "readynessProbe:", 1)
	check := exec.CommandContext(t.Context(), servertest.Get(t, servertest.KubeconformBin), "-strict", "-schema-location", schemas)
	check.Stdin = strings.NewReader(wrong)
	if out, err := check.CombinedOutput(); err == nil || !strings.Contains(string(out), "readynessProbe") {
		t.Errorf("a misspelled field: %v\n%s", err, out)
	}
}

// TestUnit: systemd accepts the unit.
func TestUnit(t *testing.T) {
	t.Parallel()
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed; only the form of the unit is checked")
	}
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	const binary = "/usr/local/bin/postrider"
	if !strings.Contains(string(text), "ExecStart="+binary+" relay ") {
		t.Errorf("the unit does not start %s relay", binary)
	}
	if verify == "" {
		return
	}
	name := filepath.Join(t.TempDir(), filepath.Base(unit))
	if err := os.WriteFile(name, bytes.ReplaceAll(text, []byte(binary), []byte("/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := output(t, verify, "verify", "--recursive-errors=no", name); len(out) > 0 {
		t.Errorf("systemd-analyze verify: %s", out)
	}
}

// output runs a program, which must succeed, and returns what it prints.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}
