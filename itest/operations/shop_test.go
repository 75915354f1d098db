package operations_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestShopAsProcesses: the flags of the shop reach its four processes, whose handlers can be made to fail, and which end with it.
func TestShopAsProcesses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "demo", "shop", "--processes", "--faults", "--plain", "--load", "10", "--for", "8s", "--port", "0",
		"--undo-attempts", "7", "--dir", t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var services [][]string
	for deadline := time.Now().Add(patience); len(services) < 4; <-time.After(50 * time.Millisecond) {
		select {
		case err := <-done:
			t.Fatalf("ended before four services ran: %v\n%s", err, out.String())
		default:
		}
		if services = servicesOf(t, cmd.Process.Pid); time.Now().After(deadline) {
			t.Fatalf("%d services run", len(services))
		}
	}
	for _, args := range services {
		if !slices.Contains(args, "--faults=true") || !slices.Contains(args, "--undo-attempts=7") {
			t.Errorf("a service without the flags: %q", args)
		}
		if slices.Contains(args, "--service=payments") {
			for _, fail := range []string{"true", "false"} {
				breakHandlers(t, valueOf(args, "--listen="), fail)
			}
		}
	}
	if err := <-done; err != nil || !strings.Contains(out.String(), "Every promise was kept.") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%v, want the ledger to be exact in plain lines:\n%s", err, out.String())
	}
	for _, args := range services {
		if _, err := http.Get("http://" + valueOf(args, "--listen=") + "/"); err == nil { //nolint:noctx,bodyclose // nobody answers
			t.Errorf("still runs: %q", args)
		}
	}
}

// servicesOf returns the command lines of a process's services.
func servicesOf(t *testing.T, parent int) (found [][]string) {
	t.Helper()
	children, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
	must(t, err)
	for _, file := range children {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		for pid := range strings.FieldsSeq(string(text)) {
			line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if args := strings.Split(string(line), "\x00"); valueOf(args, "--service=") != "" {
				found = append(found, args)
			}
		}
	}
	return found
}

func valueOf(args []string, prefix string) string {
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, prefix); ok {
			return value
		}
	}
	return ""
}

// breakHandlers asks a service until it answers.
func breakHandlers(t *testing.T, address, fail string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/faults?type=card.charge&fail="+fail, http.NoBody)
		must(t, err)
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if want := "handlers of card.charge fail: " + fail; res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("POST /faults: %d %s", res.StatusCode, body)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
