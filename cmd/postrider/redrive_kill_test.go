package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// asProgram in the environment makes the test binary run the program.
const asProgram = "POSTRIDER_TEST_AS_PROGRAM"

// TestAsProgram runs the program when this binary is started as a separate process; otherwise it tests nothing.
func TestAsProgram(*testing.T) {
	args := os.Getenv(asProgram)
	if args == "" {
		return
	}
	var list []string
	if err := json.Unmarshal([]byte(args), &list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	}
	p := &Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(p.Run(context.Background(), list))
}

// TestRedriveSurvivesItsProcesses kills the processes that drive a redrive, including one that drives it concurrently.
func TestRedriveSurvivesItsProcesses(t *testing.T) {
	t.Parallel()
	const letters = 120
	url := newOutbox(t)
	var keys []string
	for n := range letters {
		keys = append(keys, fmt.Sprint("order/", n))
	}
	publishKeys(t, url, keys...)
	deadLetterOne(t, url, "to-nats")
	o := openOutbox(t, url)
	r, err := o.StartRedrive(t.Context(), deadletter.Plan{Rate: 100, By: "olga"})
	must(t, err)
	for killed := range 4 {
		p, alongside := program(t, "redrive", "run", "1", "--store", url), program(t, "redrive", "run", "1", "--store", url)
		awaitRedrive(t, o, r.ID, func(r deadletter.Redrive) bool { return r.Done >= int64(killed+1)*20 })
		must(t, p.Process.Kill())
		must(t, alongside.Process.Kill())
		_, _ = p.Wait(), alongside.Wait() // they were killed
	}
	last := program(t, "redrive", "run", "1", "--store", url)
	if err := last.Wait(); err != nil {
		t.Errorf("the last process: %v", err)
	}
	r, err = o.ShowRedrive(t.Context(), r.ID)
	must(t, err)
	if r.State != deadletter.RedriveFinished || r.Done != letters || r.Outcome.Waiting != letters {
		t.Errorf("redrive: %+v, outcome %+v", r, r.Outcome)
	}
	seen := map[string]int{}
	settleDue(t, o, "to-nats", func(s *relay.Settlement, rec relay.Record) {
		seen[rec.Message.Key]++
		s.Removed = append(s.Removed, rec.Message.Sequence)
		if len(rec.Message.Payload) == 0 || rec.Redrives != 1 {
			t.Errorf("sent back: %+v", rec)
		}
	})
	for _, key := range keys {
		if seen[key] != 1 {
			t.Errorf("the message of %s was sent back %d times", key, seen[key])
		}
	}
}

// program starts the program as a process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(args)
	must(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAsProgram$")
	cmd.Env = append(os.Environ(), asProgram+"="+string(text))
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // usually it has already ended
	return cmd
}

func awaitRedrive(t *testing.T, o deadletter.RedriveStore, id int64, condition func(deadletter.Redrive) bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); ; <-tick.C {
		r, err := o.ShowRedrive(t.Context(), id)
		must(t, err)
		if condition(r) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redrive %+v does not get there", r)
		}
	}
}
