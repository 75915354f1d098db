package release

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
)

var chartVersion = regexp.MustCompile(`(?m)^appVersion: (.+)$`)

// withChart returns the tree with a Helm chart of a version, and the manifests that are made from it.
func (t Tree) withChart(version string) (Tree, error) {
	const chart, manifests = "deploy/helm/postrider/Chart.yaml", "deploy/kubernetes/postrider.yaml"
	old := chartVersion.FindSubmatch(t[chart])
	if old == nil {
		return nil, errors.New(chart + " has no appVersion")
	}
	number := []byte(strings.TrimPrefix(version, "v"))
	return t.with(chart, bytes.ReplaceAll(t[chart], old[1], number)).with(manifests, bytes.ReplaceAll(t[manifests], old[1], number)), nil
}
