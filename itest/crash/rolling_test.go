package crash

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// gracePeriod is how long a platform waits for a process that it has told to end (deploy/helm).
const gracePeriod = 45 * time.Second

// TestRollingUpdate: a deployment is scaled to three processes, and each is replaced under load as a platform does it: the new one must
// be ready before the old one is told to end, which is not ready from then on, and ends by itself. Nothing is lost, nothing is out of order.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	duration := loadTime(t, 15*time.Second)
	old := []pod{w.startPod()}
	load := w.startLoad(duration, 300)
	w.awaitDelivery(load, "the start")
	old = append(old, w.startPod(), w.startPod())
	w.await("three processes share the partitions", func() bool { return w.holders() == 3 })

	var replaced []pod
	for _, p := range old {
		replaced = append(replaced, w.startPod())
		w.endPod(p)
	}
	w.await("three processes share the partitions again", func() bool { return w.holders() == 3 })
	w.awaitLoad(load, duration)
	outcome := w.check(w.committed())
	t.Log(outcome)
	if !outcome.Kept() {
		t.Errorf("a promise broke: %q", outcome.Examples)
	}
	for _, p := range replaced {
		w.endPod(p)
	}
}

// pod is a process with the address of its probes.
type pod struct {
	process *process.Process
	address string
}

var answering = regexp.MustCompile(`answering /livez and /readyz" address=(\S+)`)

// startPod starts a process of the relay and waits until it is ready.
func (w *world) startPod() pod {
	w.t.Helper()
	w.relays++
	p, err := process.Start(w.t.Context(), process.Command{
		Name: "postrider relay", Path: binary,
		Args: []string{"relay", "--config", filepath.Join(w.dir, "postrider.yaml"), "--listen", "127.0.0.1:0"},
		Log:  filepath.Join(w.dir, fmt.Sprintf("relay-%d.log", w.relays)), Ready: "answering /livez",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = p.Kill() // usually it has ended
		if w.t.Failed() {
			w.t.Logf("process %d of the relay wrote:\n%s", p.PID(), p.Tail())
		}
	})
	started := pod{process: p}
	w.await("the address of the probes", func() bool {
		m := answering.FindStringSubmatch(p.Tail())
		if m != nil {
			started.address = m[1]
		}
		return m != nil
	})
	w.await("the process is ready", func() bool { return w.ready(started) })
	return started
}

// ready is what the health command of the process's container says.
func (w *world) ready(p pod) bool {
	w.t.Helper()
	return exec.CommandContext(w.t.Context(), binary, "health", "--address", p.address).Run() == nil
}

// endPod tells a process to end. It is not ready from then on, and ends by itself before a platform would kill it.
func (w *world) endPod(p pod) {
	w.t.Helper()
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	w.await("the process is no longer ready", func() bool { return !w.ready(p) })
	select {
	case <-p.process.Done():
	case <-time.After(gracePeriod):
		w.t.Fatalf("the process has not ended %s after SIGTERM", gracePeriod)
	}
	if code := p.process.ExitCode(); code != 0 {
		w.t.Errorf("exit code %d after SIGTERM", code)
	}
}

// holders counts the processes that hold partitions, 0 while one is without a holder.
func (w *world) holders() int {
	w.t.Helper()
	holders := map[string]bool{}
	for _, p := range w.status().Partitions {
		if p.Owner == "" {
			return 0
		}
		holders[p.Owner] = true
	}
	return len(holders)
}
