package redrive_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/redrive"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

func TestRedriveToItsEnd(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	var r store.Redrive
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "redrive", "start", "--relay", "to-nats", "--yes", "--json", "--by", "eva", "--store", url)), &r))
	if r.State != store.RedriveFinished || r.Done != 3 || r.By != "eva" || r.Outcome == nil || r.Outcome.Waiting != 3 {
		t.Errorf("redrive: %+v", r)
	}
	clitest.Contains(t, clitest.OK(t, "redrive", "list", "--store", url), "ID", "finished", "eva")
	clitest.Contains(t, clitest.OK(t, "redrive", "list", "--json", "--store", url), `"state":"finished"`)
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: finished", `{"relay":"to-nats"}, if sent back fewer than 3 times before`, "waiting     3")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--redrive", "1", "--state", "any", "--store", url), "order/1", "order/3", "redriven")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "postrider redrive show 1")
	clitest.Contains(t, clitest.Run(t, "redrive", "list", "--state", "running", "--store", url).Err, "no redrives")
	clitest.Fails(t, program.ExitFailed, "redrive 1 is finished: redrive has ended", "redrive", "cancel", "1", "--store", url)
	clitest.Fails(t, program.ExitFailed, "redrive 9: no such redrive", "redrive", "show", "9", "--store", url)
	clitest.Fails(t, program.ExitUsage, `"x" is not the ID of a redrive`, "redrive", "show", "x", "--store", url)
	clitest.Fails(t, program.ExitUsage, "--rate must not be negative", "redrive", "start", "--all", "--rate=-1", "--store", url)
	clitest.Fails(t, program.ExitUsage, "--max-redrives must be 1 or more", "redrive", "start", "--all", "--max-redrives=0", "--store", url)
}

func TestRedriveLeftOffAndCancelled(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.OK(t, "redrive", "start", "--all", "--rate", "0.001", "--detach", "--yes", "--store", url), "redrive 1 of 3 dead letters has begun")
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: running", "postrider redrive run 1", "0.001/s")

	ctx, interrupt := context.WithCancel(t.Context())
	o := clitest.OpenOutbox(t, url)
	go func() { // as soon as the first dead letter is sent back
		defer interrupt()
		for r, err := (store.Redrive{}), error(nil); r.Done == 0 && err == nil && ctx.Err() == nil; {
			r, err = deadletter.New(o).ShowRedrive(ctx, 1)
		}
	}()
	var out, errs clitest.Buffer
	p := &program.Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if code := cli.Run(ctx, p, []string{"redrive", "run", "1", "--store", url}); code != program.ExitFailed {
		t.Errorf("interrupted: exit code %d", code)
	}
	clitest.Contains(t, errs.String(), "interrupted; 1 of 3 were sent back", "postrider redrive run 1", "postrider redrive cancel 1")

	clitest.Contains(t, clitest.OK(t, "redrive", "cancel", "1", "--by", "eva", "--store", url), "redrive 1 is cancelled; 1 of 3 dead letters were sent back")
	ran := clitest.Run(t, "redrive", "run", "1", "--store", url)
	clitest.Expect(t, ran, program.ExitPartly, "")
	clitest.Contains(t, ran.Out, "redriven 1 dead letter in", "cancelled by eva")
	ran = clitest.Run(t, "redrive", "run", "1", "--json", "--store", url)
	clitest.Expect(t, ran, program.ExitPartly, "")
	clitest.Contains(t, ran.Out, `"state": "cancelled"`)
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--all", "--yes", "--store", url), "redriven 2 dead letters")
}

// TestRedriveStopsAndContinues: the first message fails, so the others are not sent until somebody says so.
func TestRedriveStopsAndContinues(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Fails(t, program.ExitUsage, "--stop-at is a percentage", "redrive", "start", "--all", "--stop-at=100", "--store", url)
	clitest.OK(t, "redrive", "start", "--all", "--first", "--stop-at", "5", "--detach", "--yes", "--store", url)
	clitest.Fails(t, program.ExitFailed, "the redrive is not stopped", "redrive", "continue", "1", "--store", url)
	o := clitest.OpenOutbox(t, url)
	_, _, err := deadletter.New(o).StepRedrive(t.Context(), 1, 0)
	clitest.Must(t, err)
	clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, e store.Entry) {
		s.Dead = append(s.Dead, store.DeadOutcome{Sequence: e.Message.Sequence, Key: e.Message.Key, Reason: "again"})
	})
	clitest.Fails(t, program.ExitPartly, "redrive 1 has stopped, with 1 of 3 sent back: the first message failed", "redrive", "run", "1", "--store", url)
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: stopped: the first message failed", "postrider redrive continue 1")
	clitest.Contains(t, clitest.OK(t, "redrive", "list", "--store", url), "stopped")
	clitest.Contains(t, clitest.OK(t, "redrive", "continue", "1", "--because", "repaired", "--store", url), "redrive 1 goes on; 1 of 3 dead letters were sent back")
	clitest.Contains(t, clitest.OK(t, "redrive", "run", "1", "--store", url), "redriven 3 dead letters")
	clitest.Contains(t, clitest.OK(t, "audit", "--store", url), "ContinueRedrive", "repaired")
}

// away is a store that cannot be reached any longer, for steps of redrives or for the outcome of their messages.
type away struct {
	backend.Store
	steps bool
}

var errAway = errors.New("the database is away")

func (s away) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	if s.steps && op.Method == "StepRedrive" || op.Method == "ShowRedrive" {
		return errAway
	}
	return s.Store.View(ctx, op, f)
}

// TestRedriveThatIsCutOff: the command says how far the redrive had come, even if other processes drove it.
func TestRedriveThatIsCutOff(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	o := clitest.OpenOutbox(t, url)
	r, err := deadletter.New(o).StartRedrive(t.Context(), deadletter.Plan{By: "eva"})
	clitest.Must(t, err)
	r, _, err = deadletter.New(o).StepRedrive(t.Context(), r.ID, 2)
	clitest.Must(t, err)
	drive := func(s backend.Store) string {
		var out, errs clitest.Buffer
		p := &program.Program{Stdout: &out, Stderr: &errs}
		return redrive.Drive(t.Context(), p, &backend.Outbox{Store: s}, r).Error()
	}
	clitest.Contains(t, drive(away{o.Store, true}), "redrive 1: the database is away; 2 of 3 were sent back. The relays go on with it")
	clitest.Contains(t, drive(away{o.Store, false}), "redrive 1 is finished, 3 of 3 were sent back; what became of them was not read: the database is away")
}

// TestRedriveRefuses: a message that was dead-lettered again after each of three redrives.
func TestRedriveRefuses(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.DeadLetterOne(t, url, "to-nats")
	for n := range 3 {
		clitest.OK(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url)
		o := clitest.OpenOutbox(t, url)
		clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
			s.Dead = append(s.Dead, store.DeadOutcome{
				Sequence: r.Message.Sequence, Key: r.Message.Key, Reason: "attempts exhausted", Cause: "still no", Attempts: n,
			})
		})
	}
	clitest.Fails(t, program.ExitFailed, "message was sent back too often: that of dead letter 4 was sent back 3 times", "dead", "redrive", "4", "--store", url)
	r := clitest.Run(t, "redrive", "start", "--all", "--yes", "--store", url)
	clitest.Expect(t, r, program.ExitPartly, "1 dead letter refused: sent back 3 times already")
	clitest.Contains(t, r.Out, "redriven 0 dead letters", "1 refused")
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "4", "--store", url), "all open dead letters, if sent back fewer than 3 times before")
	clitest.Fails(t, program.ExitFailed, "postrider: redrive 7: no such redrive; postrider redrive list", "redrive", "show", "7", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--all", "--max-redrives", "4", "--dry-run", "--store", url), "1 open dead letter match")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "4", "--force", "--store", url), "redriven 1 dead letter")
}

func TestRedriveThatFails(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.OK(t, "redrive", "start", "--all", "--rate", "0.001", "--detach", "--yes", "--store", url)
	o := clitest.OpenOutbox(t, url)
	r, err := deadletter.New(o).FailRedrive(t.Context(), 1, 0, "letter 2 has no history")
	clitest.Must(t, err)
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: running", "1 in a row, the last: letter 2 has no history",
		"next attempt")
	for r.State == store.RedriveRunning {
		r, err = deadletter.New(o).FailRedrive(t.Context(), 1, r.Failures, "letter 2 has no history")
		clitest.Must(t, err)
	}
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: failed", "20 in a row")
	clitest.Contains(t, clitest.OK(t, "redrive", "list", "--state", "failed", "--store", url), "failed")
	clitest.Fails(t, program.ExitFailed, "redrive 1 has failed, with 0 of 3 sent back: letter 2 has no history", "redrive", "run", "1", "--store", url)
}
