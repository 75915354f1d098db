package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// exposure is the largest score of systemd-analyze security, of 100, that the unit may have. Below 50 it says OK.
const exposure = "20"

// TestUnitIsConfined: the unit takes from the relay what it does not need.
func TestUnitIsConfined(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed; the unit is not rated")
		return
	}
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	rate := func(text []byte) (string, error) {
		name := filepath.Join(t.TempDir(), filepath.Base(unit))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold="+exposure, name).CombinedOutput()
		return string(out), err
	}
	if out, err := rate(text); err != nil {
		t.Errorf("the exposure is above %s: %v\n%s", exposure, err, out)
	}
	if out, err := rate([]byte("[Service]\nExecStart=/bin/true\n")); err == nil {
		t.Errorf("a unit without any protection is accepted too:\n%s", out)
	}
}
