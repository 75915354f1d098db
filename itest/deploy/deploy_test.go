// Package deploy_test checks what is in the folder deploy: the Helm chart, the manifests made from it, and the systemd unit.
package deploy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

const (
	root       = "../.."
	chart      = "deploy/helm/postrider"
	manifests  = "deploy/kubernetes/postrider.yaml"
	everything = "itest/deploy/testdata/everything.yaml"
	unit       = "../../deploy/systemd/postrider-relay.service"
	sums       = "itest/deploy/testdata/SHA256SUMS"
	schemas    = "testdata/schemas/{{.ResourceKind}}{{.KindSuffix}}.json"
)

var update = flag.Bool("update", false, "write the manifests, and what they were made from")

// header begins the plain manifests.
const header = `# The Helm chart in deploy/helm/postrider with its defaults and a ServiceMonitor: make chart writes it.
# The secret "postrider" must exist (docs/operations/install.md), and the job must have ended before the deployment starts.
`

// image is the value without which no chart is rendered.
const image = "image.repository=registry.example.com/postrider"

// values are what the chart is rendered with.
var values = map[string][]string{
	"the plain manifests":           {"--set", image + ",serviceMonitor.enabled=true"},
	"one process, nothing optional": {"--set", image + ",replicas=1,migrate.enabled=false,networkPolicy.enabled=false"},
	"everything":                    {"--values", everything},
}

// TestChart: Helm renders the chart to objects that Kubernetes accepts, whatever is switched on. Since Helm takes minutes to build, it
// runs only if the chart, the values, this test, or Helm is not what it was when the plain manifests were made.
func TestChart(t *testing.T) {
	t.Parallel()
	if *update || string(read(t, sums)) != inputs(t) {
		withHelm(t)
	}
	objects := read(t, manifests)
	checkObjects(t, objects)
	for _, secret := range []string{"kind: Secret\n", "password:"} {
		if strings.Contains(string(objects), secret) {
			t.Errorf("%s has %q: secrets are referenced only", manifests, secret)
		}
	}
}

// withHelm checks the chart with Helm, and that the plain manifests are made from it.
func withHelm(t *testing.T) {
	t.Helper()
	helm := servertest.Get(t, servertest.HelmBin)
	output(t, helm, "lint", "--strict", "--set", image, chart)
	checkRefused(t, helm)
	for name, args := range values {
		objects := output(t, helm, append([]string{"template", "postrider", chart, "--namespace", "postrider", "--kube-version", "1.37.0"}, args...)...)
		checkObjects(t, objects)
		if *update && name == "the plain manifests" {
			write(t, manifests, append([]byte(header), objects...))
		}
	}
	if *update && !t.Failed() {
		write(t, sums, []byte(inputs(t)))
	} else {
		t.Error("the plain manifests were not made from this chart: make chart")
	}
}

// checkRefused: values that would be ignored, or make a chart that cannot work, are errors.
func checkRefused(t *testing.T, helm string) {
	t.Helper()
	for _, wrong := range []string{"replica=3", "replicas=0", "image.repository=", "config.relays=null", "serviceMonitor.enable=true"} {
		check := exec.CommandContext(t.Context(), helm, "template", "postrider", chart, "--kube-version", "1.37.0", "--set", image, "--set", wrong)
		check.Dir = root
		if out, err := check.CombinedOutput(); err == nil {
			t.Errorf("--set %s was accepted:\n%s", wrong, out)
		}
	}
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: (.+)$`)

// inputs are the checksums of what the objects are made from and checked with, and of the plain manifests. The chart's version, which
// each release changes, is left out.
func inputs(t *testing.T) string {
	t.Helper()
	version := appVersion.FindSubmatch(read(t, chart+"/Chart.yaml"))
	if version == nil {
		t.Fatal("the chart has no appVersion")
	}
	names := []string{"tools/deploy/go.mod", everything, manifests, "itest/deploy/deploy_test.go"}
	err := filepath.WalkDir(filepath.Join(root, chart), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var all strings.Builder
	for _, name := range names {
		content := read(t, name)
		if name == manifests || name == chart+"/Chart.yaml" {
			content = bytes.ReplaceAll(content, version[1], nil)
		}
		fmt.Fprintf(&all, "%x  %s\n", sha256.Sum256(content), name)
	}
	return all.String()
}

// read returns a file of the repository, nothing if it does not exist yet.
func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// checkObjects checks objects against the schemas of Kubernetes.
func checkObjects(t *testing.T, objects []byte) {
	t.Helper()
	check := exec.CommandContext(t.Context(), servertest.Get(t, servertest.KubeconformBin), "-strict", "-schema-location", schemas)
	check.Stdin = bytes.NewReader(objects)
	if out, err := check.CombinedOutput(); err != nil || len(objects) == 0 {
		t.Errorf("kubeconform: %v\n%s\n%s", err, out, objects)
	}
}

// TestSchemaFindsErrors: kubeconform with these schemas refuses a field that does not exist.
func TestSchemaFindsErrors(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(string(read(t, manifests)), "readinessProbe:", "readynessProbe:", 1)
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

// output runs a program in the repository, which must succeed, and returns what it prints.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}
