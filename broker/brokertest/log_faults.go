package brokertest

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider"
)

// interrupted waits until a reader has ended, and returns what it read before.
func interrupted(t testing.TB, r postrider.LogReader) (got []*postrider.Delivery) {
	t.Helper()
	for {
		out, err := r.Read(t.Context(), 100, 1<<20)
		if err == nil {
			got = append(got, out...)
			continue
		}
		if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("read: %v, want an error made by Unavailable", err)
		}
		if out, err := r.Read(t.Context(), 100, 1<<20); err == nil {
			t.Errorf("a reader that has ended returned %+v", out[0].Position)
		}
		return got
	}
}

// testLogTailLost: messages at the lost offsets are told from those that were there.
func testLogTailLost(t *testing.T, l *logTest) {
	l.publish(t, 10)
	old := l.member.all(t)
	l.LoseTail(t, 4)
	now := make(map[string]int64)
	for _, p := range l.member.parts(t) {
		now[p.Name] = p.End
	}
	check := func(when string) {
		lost := 0
		for _, d := range old {
			want := postrider.PositionKept
			if d.Position.Offset > now[d.Position.Partition] {
				lost++
				want = postrider.PositionReplaced
			}
			if state := l.verified(t, d.Position); state != want {
				t.Errorf("%s: %+v is %v, want %v", when, d.Position, state, want)
			}
		}
		if lost != 4 {
			t.Errorf("%s: %d messages are lost, want 4", when, lost)
		}
	}
	check("with a shorter log")
	l.publish(t, 20)
	check("with other messages in their places")
}

// testLogExpired: removed messages are no other messages, and reading resumes after them.
func testLogExpired(t *testing.T, l *logTest) {
	l.publish(t, 12)
	old := l.member.all(t)
	l.Expire(t, 5)
	first := make(map[string]int64)
	for _, p := range l.member.parts(t) {
		first[p.Name] = p.First
	}
	left := 0
	for _, d := range old {
		want := postrider.PositionKept
		if d.Position.Offset < first[d.Position.Partition] {
			want = postrider.PositionRemoved
		} else {
			left++
		}
		if state := l.verified(t, d.Position); state != want {
			t.Errorf("%+v is %v, want %v", d.Position, state, want)
		}
	}
	if left != 7 {
		t.Errorf("%d messages are left by their offsets, want 7", left)
	}
	at := old[0].Position
	p := l.part(t, at.Partition)
	r := l.member.open(t, p, at.Offset)
	if p.Sparse { // only the reader can tell that others were removed
		if got := interrupted(t, r); len(got) > 0 {
			t.Errorf("after a removed message comes %+v", got[0].Position)
		}
		r = l.member.open(t, p, p.First-1)
	}
	if d := read(t, r, 1)[0]; d.Position.Offset < first[at.Partition] {
		t.Errorf("after a removed message comes %+v; the first is %d", d.Position, first[at.Partition])
	}
}

func testLogRecreated(t *testing.T, l *logTest) {
	l.publish(t, 10)
	old := l.member.all(t)
	p := l.part(t, old[0].Position.Partition)
	r := l.member.open(t, p, p.First-1)
	read(t, r, 1)
	l.Recreate(t)
	interrupted(t, r)
	want := l.publish(t, 10)
	for _, d := range old {
		if state := l.verified(t, d.Position); state != postrider.PositionReplaced {
			t.Errorf("%+v is %v, want replaced", d.Position, state)
		}
	}
	for _, now := range l.member.parts(t) {
		if now.Incarnation == p.Incarnation {
			t.Errorf("incarnation of the topic is %q, and so is that of the recreated one", p.Incarnation)
		}
	}
	sameSet(t, deliveredIDs(l.member.all(t)), want)
}

// testLogCut: a reader whose connection broke has ended, even if it works again.
func testLogCut(t *testing.T, l *logTest) {
	want := l.publish(t, 10)
	p := l.part(t, l.member.all(t)[0].Position.Partition)
	r := l.member.open(t, p, p.End)
	done := make(chan struct{})
	go func() {
		defer close(done)
		interrupted(t, r)
	}()
	l.member.Cut()
	if _, err := l.member.Partitions(t.Context()); postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
		t.Errorf("list the partitions: %v, want an error made by Unavailable", err)
	}
	l.member.Restore()
	<-done
	want = append(want, l.publish(t, 5)...)
	sameSet(t, deliveredIDs(l.member.all(t)), want)
}

func testLogRestart(t *testing.T, l *logTest) {
	want := l.publish(t, 10)
	p := l.part(t, l.member.all(t)[0].Position.Partition)
	r := l.member.open(t, p, p.End)
	l.Stop(t)
	interrupted(t, r)
	l.Start(t)
	want = append(want, l.publish(t, 5)...)
	sameSet(t, deliveredIDs(l.member.all(t)), want)
}

// testLogGrown: partitions that are added are listed, and the others stay as they were.
func testLogGrown(t *testing.T, l *logTest) {
	want := l.publish(t, 10)
	before := l.member.parts(t)
	l.Grow(t)
	now := patiently(t, "list the new partitions", func(ctx context.Context) ([]postrider.LogPartition, error) {
		now, err := l.member.Partitions(ctx)
		if err == nil && len(now) == len(before) {
			err = postrider.Unavailable(errNotGrown)
		}
		return now, err
	})
	names := make(map[string]postrider.LogPartition)
	for _, p := range now {
		names[p.Name] = p
	}
	for _, p := range before {
		if same := names[p.Name]; same.Incarnation != p.Incarnation || same.First != p.First || same.End != p.End {
			t.Errorf("partition is %+v, was %+v", same, p)
		}
	}
	want = append(want, l.publish(t, 10)...)
	sameSet(t, deliveredIDs(l.member.all(t)), want)
}

var errNotGrown = errors.New("the partitions are not there yet")

// testLogLag: the broker's tools show what a consumer has reported.
func testLogLag(t *testing.T, l *logTest) {
	reporter, ok := l.member.Log.(postrider.LogReporter)
	if !ok {
		t.Fatalf("%T is no postrider.LogReporter", l.member.Log)
	}
	l.publish(t, 20)
	last := make(map[string]postrider.Position)
	for _, d := range l.member.all(t) {
		last[d.Position.Partition] = d.Position
	}
	for missing := int64(1); missing >= 0; missing-- {
		for _, at := range last {
			at.Offset -= missing
			if err := reporter.ReportPosition(t.Context(), "view of.orders", at); err != nil {
				t.Errorf("report %+v: %v", at, err)
			}
		}
		if lag, want := l.Lag(t, "view of.orders"), missing*int64(len(last)); lag != want {
			t.Errorf("the broker shows a lag of %d, want %d", lag, want)
		}
	}
}
