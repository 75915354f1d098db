package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

func TestRedriveToItsEnd(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	var r deadletter.Redrive
	must(t, json.Unmarshal([]byte(ok(t, "redrive", "start", "--relay", "to-nats", "--yes", "--json", "--by", "eva", "--store", url)), &r))
	if r.State != deadletter.RedriveFinished || r.Done != 3 || r.By != "eva" || r.Outcome == nil || r.Outcome.Waiting != 3 {
		t.Errorf("redrive: %+v", r)
	}
	contains(t, ok(t, "redrive", "list", "--store", url), "ID", "finished", "eva")
	contains(t, ok(t, "redrive", "list", "--json", "--store", url), `"state":"finished"`)
	contains(t, ok(t, "redrive", "show", "1", "--store", url), "redrive 1: finished", `{"relay":"to-nats","max_redrives":3}`, "waiting     3")
	contains(t, ok(t, "dead", "list", "--redrive", "1", "--state", "any", "--store", url), "order/1", "order/3", "redriven")
	contains(t, ok(t, "dead", "show", "2", "--store", url), "postrider redrive show 1")
	contains(t, run(t, "redrive", "list", "--state", "running", "--store", url).err, "no redrives")
	fails(t, exitFailed, "redrive 1 is finished: redrive has ended", "redrive", "cancel", "1", "--store", url)
	fails(t, exitFailed, "redrive 9: no such redrive", "redrive", "show", "9", "--store", url)
	fails(t, exitUsage, `"x" is not the ID of a redrive`, "redrive", "show", "x", "--store", url)
	fails(t, exitUsage, "--rate must not be negative", "redrive", "start", "--all", "--rate=-1", "--store", url)
	fails(t, exitUsage, "--max-redrives must be 1 or more", "redrive", "start", "--all", "--max-redrives=0", "--store", url)
}

func TestRedriveLeftOffAndCancelled(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	contains(t, ok(t, "redrive", "start", "--all", "--rate", "0.001", "--detach", "--yes", "--store", url), "redrive 1 of 3 dead letters has begun")
	contains(t, ok(t, "redrive", "show", "1", "--store", url), "redrive 1: running", "postrider redrive run 1", "0.001/s")

	ctx, interrupt := context.WithCancel(t.Context())
	o := openOutbox(t, url)
	go func() { // as soon as the first dead letter is sent back
		defer interrupt()
		for r, err := (deadletter.Redrive{}), error(nil); r.Done == 0 && err == nil && ctx.Err() == nil; {
			r, err = o.ShowRedrive(ctx, 1)
		}
	}()
	var out, errs syncBuffer
	p := &Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if code := p.Run(ctx, []string{"redrive", "run", "1", "--store", url}); code != exitFailed {
		t.Errorf("interrupted: exit code %d", code)
	}
	contains(t, errs.String(), "interrupted; 1 of 3 were sent back", "postrider redrive run 1", "postrider redrive cancel 1")

	contains(t, ok(t, "redrive", "cancel", "1", "--by", "eva", "--store", url), "redrive 1 is cancelled; 1 of 3 letters were sent back")
	contains(t, ok(t, "redrive", "run", "1", "--store", url), "redriven 1 dead letter in", "cancelled by eva")
	contains(t, ok(t, "dead", "redrive", "--all", "--yes", "--store", url), "redriven 2 dead letters")
}

// away is a store that cannot be reached any longer, for steps of redrives or for the outcome of their messages.
type away struct {
	backend.Store
	steps bool
}

var errAway = errors.New("the database is away")

func (s away) StepRedrive(ctx context.Context, id int64, limit int) (deadletter.Redrive, time.Duration, error) {
	if s.steps {
		return deadletter.Redrive{}, 0, errAway
	}
	return s.Store.StepRedrive(ctx, id, limit)
}

func (s away) ShowRedrive(context.Context, int64) (deadletter.Redrive, error) {
	return deadletter.Redrive{}, errAway
}

// TestRedriveThatIsCutOff: the command says how far the redrive had come, even if other processes drove it.
func TestRedriveThatIsCutOff(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	o := openOutbox(t, url)
	r, err := o.StartRedrive(t.Context(), deadletter.Plan{By: "eva"})
	must(t, err)
	r, _, err = o.StepRedrive(t.Context(), r.ID, 2)
	must(t, err)
	drive := func(s backend.Store) string {
		var out, errs syncBuffer
		p := &Program{Stdout: &out, Stderr: &errs}
		return p.drive(t.Context(), &backend.Outbox{Store: s}, r, false).Error()
	}
	contains(t, drive(away{o.Store, true}), "redrive 1: the database is away; 2 of 3 were sent back. The relays go on with it")
	contains(t, drive(away{o.Store, false}), "redrive 1 is finished, 3 of 3 were sent back; what became of them was not read: the database is away")
}

func TestRelayDrivesRedrives(t *testing.T) {
	t.Parallel()
	url, broker := withDead(t), startNATS(t)
	ok(t, "redrive", "start", "--all", "--detach", "--yes", "--store", url)
	r := start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS")
	r.err.await(t.Context(), t, "relay works")
	if got := arrivals(t, broker, "ORDERS", 3); !strings.Contains(strings.Join(got, ""), "order/3") {
		t.Errorf("arrived: %q", got)
	}
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
	contains(t, ok(t, "redrive", "show", "1", "--store", url), "redrive 1: finished", "delivered   3")
}

// TestRedriveRefuses: a message that was dead-lettered again after each of three redrives.
func TestRedriveRefuses(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1")
	deadLetterOne(t, url, "to-nats")
	for n := range 3 {
		ok(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url)
		o := openOutbox(t, url)
		settleDue(t, o, "to-nats", func(s *relay.Settlement, r relay.Record) {
			s.Dead = append(s.Dead, relay.Dead{
				Sequence: r.Message.Sequence, Key: r.Message.Key, Reason: "attempts exhausted", Cause: "still no", Attempts: n,
			})
		})
	}
	fails(t, exitFailed, "message was sent back too often: that of dead letter 4 was sent back 3 times", "dead", "redrive", "4", "--store", url)
	r := run(t, "redrive", "start", "--all", "--yes", "--store", url)
	expect(t, r, exitPartly, "1 letter refused: sent back 3 times already")
	contains(t, r.out, "redriven 0 dead letters", "1 refused")
	contains(t, ok(t, "dead", "redrive", "--all", "--max-redrives", "4", "--dry-run", "--store", url), "1 open dead letter match")
	contains(t, ok(t, "dead", "redrive", "4", "--force", "--store", url), "redriven 1 dead letter")
}

// settleDue settles what is due, one partition at a time.
func settleDue(t *testing.T, o *backend.Outbox, name string, decide func(s *relay.Settlement, r relay.Record)) {
	t.Helper()
	ctx := t.Context()
	total, err := o.Partitions(ctx)
	must(t, err)
	_, err = o.Heartbeat(ctx, name, tester, time.Minute)
	must(t, err)
	req := relay.DueRequest{Runs: 1_000, RunLength: 1_000, MaxBytes: 1 << 20}
	all := make([]int, total)
	for n := range total {
		all[n] = n
	}
	leases, err := o.Acquire(ctx, name, tester, acquire(all...))
	must(t, err)
	byPartition := map[int]*relay.Lease{}
	for i, l := range leases {
		byPartition[l.Partition] = &leases[i]
		req.Leases = append(req.Leases, l.Ref())
	}
	due, err := o.Due(ctx, name, req)
	must(t, err)
	for _, run := range due.Runs {
		l := byPartition[run.Partition]
		l.Settled++
		s := relay.Settlement{Partition: run.Partition, Token: l.Token, Number: l.Settled}
		for _, r := range run.Records {
			decide(&s, r)
		}
		_, err := o.Settle(ctx, name, []relay.Settlement{s})
		must(t, err)
	}
	must(t, o.Leave(ctx, name, tester))
}

func TestRedriveThatFails(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	ok(t, "redrive", "start", "--all", "--rate", "0.001", "--detach", "--yes", "--store", url)
	o := openOutbox(t, url)
	r, err := o.FailRedrive(t.Context(), 1, 0, "letter 2 has no history")
	must(t, err)
	contains(t, ok(t, "redrive", "show", "1", "--store", url), "redrive 1: running", "1 in a row, the last: letter 2 has no history",
		"next attempt")
	for r.State == deadletter.RedriveRunning {
		r, err = o.FailRedrive(t.Context(), 1, r.Failures, "letter 2 has no history")
		must(t, err)
	}
	contains(t, ok(t, "redrive", "show", "1", "--store", url), "redrive 1: failed", "20 in a row")
	contains(t, ok(t, "redrive", "list", "--state", "failed", "--store", url), "failed")
	fails(t, exitFailed, "redrive 1 has failed, with 0 of 3 sent back: letter 2 has no history", "redrive", "run", "1", "--store", url)
}
