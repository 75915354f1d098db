package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// positionStore has the positions of a consumer.
type positionStore struct {
	store.Inbox[any]
	positions []store.LogPosition
}

func (s positionStore) LogPositions(context.Context, string) ([]store.LogPosition, error) {
	return s.positions, nil
}

// TestIDsAreKeptForPartitionsThatExist: the position of a partition that is gone, e.g. after a topic was removed from the configuration, never
// moves again. It does not keep IDs, unless the log has not told yet which partitions it has.
func TestIDsAreKeptForPartitionsThatExist(t *testing.T) {
	t.Parallel()
	c := &Consumer[any]{store: positionStore{positions: []store.LogPosition{
		{Partition: "orders/0", Moved: time.Minute, Open: time.Hour}, {Partition: "gone/0", Moved: 365 * 24 * time.Hour},
	}}}
	for _, test := range []struct {
		parts []postrider.LogPartition
		want  time.Duration
	}{
		{nil, 365 * 24 * time.Hour},
		{[]postrider.LogPartition{{Name: "orders/0"}}, time.Hour + time.Minute},
		{[]postrider.LogPartition{{Name: "gone/0"}, {Name: "orders/0"}}, 365 * 24 * time.Hour},
	} {
		s := &logSource[any]{c: c, parts: test.parts}
		if longer, err := s.keptLonger(t.Context()); longer != test.want || err != nil {
			t.Errorf("partitions %+v: %s longer, %v; want %s", test.parts, longer, err, test.want)
		}
	}
}

// TestPartitionsOfOthersAreNotFailing: that a partition could not be read is forgotten when its lease moves away, so that its next failure here
// is logged, and it does not count.
func TestPartitionsOfOthersAreNotFailing(t *testing.T) {
	t.Parallel()
	lease := store.LeaseRef{Partition: 1, Token: "mine"}
	for name, end := range map[string]func(s *logSource[any]){
		"released": func(s *logSource[any]) { s.release(t.Context(), []store.LeaseRef{lease}) },
		"lapsed":   func(s *logSource[any]) { s.hold(map[int]string{}) },
	} {
		var log bytes.Buffer
		s := &logSource[any]{
			c:    &Consumer[any]{cfg: ConsumerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}},
			held: map[int]string{1: "mine"}, runs: make(map[string]*logRun[any]), failing: make(map[string]bool),
		}
		for _, part := range []string{"theirs", "ours"} {
			r := &logRun[any]{src: s, done: make(chan struct{})}
			r.ctx, r.end = context.WithCancel(t.Context())
			close(r.done)
			s.runs[part] = r
		}
		s.runs["theirs"].lease = lease
		s.runs["theirs"].away.Store(true)
		s.runs["ours"].away.Store(true)
		s.unreadable("theirs", errors.New("no answer"))
		if s.connected() {
			t.Errorf("%s: connected, and no partition can be read", name)
		}
		s.runs["ours"].away.Store(false)
		end(s)
		if s.unreadable("theirs", errors.New("no answer")); strings.Count(log.String(), "cannot read") != 2 || !s.connected() {
			t.Errorf("%s: connected %v, want the second failure logged\n%s", name, s.connected(), &log)
		}
	}
}

// reportingLog counts what it is told.
type reportingLog struct {
	postrider.Log
	told int
}

func (l *reportingLog) ReportPosition(context.Context, string, postrider.Position) error {
	l.told++
	return nil
}

// TestPositionsAreReportedAgain: a broker that forgets old offsets would show the whole log as the lag of an idle consumer.
func TestPositionsAreReportedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &reportingLog{}
		r := &logRun[any]{src: &logSource[any]{c: &Consumer[any]{}, log: log}, ctx: t.Context(), position: store.LogPosition{Offset: 7}}
		for range 10 {
			r.report(t.Context())
		}
		if log.told != 1 {
			t.Errorf("the broker was told %d times, want once", log.told)
		}
		time.Sleep(reportAgain)
		if r.report(t.Context()); log.told != 2 {
			t.Errorf("the broker was told %d times, want again after %s", log.told, reportAgain)
		}
	})
}

// TestEveryOutageOfAPartitionIsLogged: also a failure after the partition has been read for a while. Failures that follow at once are not.
// That another process has moved the position is no failure.
func TestEveryOutageOfAPartitionIsLogged(t *testing.T) {
	t.Parallel()
	for words, err := range map[string]error{
		`level=WARN msg="consumer cannot read a partition of its log and keeps trying" consumer=c partition=p error="no answer"`: errors.New("no answer"),
		`level=INFO msg="another process has moved the consumer's position in a partition of its log; this one reads on from there" ` +
			"consumer=c partition=p\n": fmt.Errorf("move: %w", store.ErrPositionMoved),
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			outages(t, words, err)
		})
	}
}

// outages ends six sessions with an error, and wants it to be logged three times.
func outages(t *testing.T, words string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		c := &Consumer[any]{cfg: ConsumerConfig{Name: "c", Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		r := &logRun[any]{
			src: &logSource[any]{c: c}, ctx: ctx, end: cancel, done: make(chan struct{}), part: postrider.LogPartition{Name: "p"},
		}
		sessions := []time.Duration{0, 0, 0, time.Hour, 0, time.Hour}
		began := time.Now()
		r.loop(func() error {
			if len(sessions) == 0 {
				cancel()
				return nil
			}
			time.Sleep(sessions[0])
			sessions = sessions[1:]
			return err
		})
		if all, n := strings.Count(log.String(), "\n"), strings.Count(log.String(), words); all != 3 || n != 3 {
			t.Errorf("%d of %d lines say it, want 3:\n%s", n, all, &log)
		}
		if waited := time.Since(began) - 2*time.Hour; waited > 3*time.Second {
			t.Errorf("waited %s between sessions; the wait begins again after a session of an hour", waited)
		}
	})
}
