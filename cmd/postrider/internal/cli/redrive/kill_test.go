package redrive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
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
		os.Exit(program.ExitUsage)
	}
	p := &program.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(cli.Run(context.Background(), p, list))
}

// TestRedriveSurvivesItsProcesses kills the processes that drive a redrive, including one that drives it concurrently.
func TestRedriveSurvivesItsProcesses(t *testing.T) {
	t.Parallel()
	const deadLetters = 120
	url := clitest.NewOutbox(t)
	var keys []string
	for n := range deadLetters {
		keys = append(keys, fmt.Sprint("order/", n))
	}
	clitest.PublishKeys(t, url, keys...)
	clitest.DeadLetterOne(t, url, "to-nats")
	o := clitest.OpenOutbox(t, url)
	r, err := deadletter.New(o).StartRedrive(t.Context(), deadletter.Plan{Rate: 100, By: "olga"})
	clitest.Must(t, err)
	for killed := range 4 {
		p, alongside := spawn(t, "redrive", "run", "1", "--store", url), spawn(t, "redrive", "run", "1", "--store", url)
		awaitRedrive(t, o, r.ID, func(r store.Redrive) bool { return r.Done >= int64(killed+1)*20 })
		clitest.Must(t, p.Process.Kill())
		clitest.Must(t, alongside.Process.Kill())
		_, _ = p.Wait(), alongside.Wait() // they were killed
	}
	last := spawn(t, "redrive", "run", "1", "--store", url)
	if err := last.Wait(); err != nil {
		t.Errorf("the last process: %v", err)
	}
	r, err = deadletter.New(o).ShowRedrive(t.Context(), r.ID)
	clitest.Must(t, err)
	if r.State != store.RedriveFinished || r.Done != deadLetters || r.Outcome.Waiting != deadLetters {
		t.Errorf("redrive: %+v, outcome %+v", r, r.Outcome)
	}
	seen := map[string]int{}
	clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, rec store.Entry) {
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

// spawn starts the program as a process.
func spawn(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(args)
	clitest.Must(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAsProgram$")
	cmd.Env = append(os.Environ(), asProgram+"="+string(text))
	clitest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // usually it has already ended
	return cmd
}

func awaitRedrive(t *testing.T, o store.Records, id int64, condition func(store.Redrive) bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); ; <-tick.C {
		r, err := deadletter.New(o).ShowRedrive(t.Context(), id)
		clitest.Must(t, err)
		if condition(r) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redrive %+v does not get there", r)
		}
	}
}
