package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// LogHarness is what RunLog needs to test a broker's log. The zero value of each reason means that the broker can do it.
type LogHarness struct {
	// NoLoseTail, NoExpire, NoRecreate, NoCut, NoStop, NoGrow and NoLag say why the environment does not have the function of
	// that name.
	NoLoseTail, NoExpire, NoRecreate, NoCut, NoStop, NoGrow, NoLag string
	// New creates a new environment for one test. It must be stopped at the end of the test (t.Cleanup).
	New func(t *testing.T) LogEnv
}

// LogEnv is an empty log.
type LogEnv struct {
	// Topic is the topic that messages are published to, Publisher publishes to it.
	Topic     string
	Publisher postrider.Publisher
	// Member returns the subscriber of one more process, whose capabilities say Log.
	Member func(t testing.TB) Member
	// Poison stores what is no message, as SubscriberEnv.Poison does.
	Poison func(t testing.TB, m *postrider.Message)
	// LoseTail removes the last n messages, so that their offsets are used again, as a restored backup or a new leader does.
	LoseTail func(t testing.TB, n int)
	// Expire removes the first n messages, as retention does.
	Expire func(t testing.TB, n int)
	// Recreate deletes the topic with all its messages and allows it to be recreated.
	Recreate func(t testing.TB)
	// Stop kills the broker, and Start restarts it at the same address with the data that it had stored.
	Stop, Start func(t testing.TB)
	// Grow adds partitions to the topic.
	Grow func(t testing.TB)
	// Lag is how many messages the broker's tools show beyond the reported positions of a consumer.
	Lag func(t testing.TB, consumer string) int64
}

// RunLog tests a broker's log against the contract of postrider.Log. Every test gets a new environment.
func RunLog(t *testing.T, h LogHarness) {
	t.Helper()
	for _, tt := range []struct {
		name   string
		run    func(t *testing.T, l *logTest)
		unless string
	}{
		{"capabilities", testLogCapabilities, ""},
		{"everything in order", testLogInOrder, ""},
		{"from any offset", testLogFromOffset, ""},
		{"two readers", testLogTwoReaders, ""},
		{"limits", testLogLimits, ""},
		{"poison", testLogPoison, ""},
		{"cancelled", testLogCancelled, ""},
		{"closed", testLogClosed, ""},
		{"tail lost", testLogTailLost, h.NoLoseTail},
		{"expired", testLogExpired, h.NoExpire},
		{"recreated", testLogRecreated, h.NoRecreate},
		{"cut", testLogCut, h.NoCut},
		{"restart", testLogRestart, h.NoStop},
		{"grown", testLogGrown, h.NoGrow},
		{"lag", testLogLag, h.NoLag},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.unless != "" {
				t.Logf("not promised: %s", tt.unless)
				return
			}
			env := h.New(t)
			l := &logTest{LogEnv: env, out: &suite{Harness: Harness{Publisher: env.Publisher}}}
			l.member = l.join(t)
			tt.run(t, l)
		})
	}
}

// logTest is the environment of one test.
type logTest struct {
	LogEnv
	out       *suite
	member    logMember
	published int64
}

type logMember struct {
	Member
	postrider.Log
}

func (l *logTest) join(t testing.TB) logMember {
	t.Helper()
	m := l.Member(t)
	log, ok := m.Subscriber.(postrider.Log)
	if !ok || !m.Capabilities().Log {
		t.Fatalf("%T is no postrider.Log", m.Subscriber)
	}
	return logMember{m, log}
}

// publish publishes n messages and returns their IDs.
func (l *logTest) publish(t testing.TB, n int) []string {
	t.Helper()
	msgs := batch(l.Topic, n, 1+l.published, "a", "b", "c", "")
	l.published += int64(n)
	l.out.deliver(t.Context(), t, msgs)
	out := make([]string, n)
	for i, m := range msgs {
		out[i] = m.ID
	}
	return out
}

// patiently calls f until it returns something else than an Unavailable error.
func patiently[T any](t testing.TB, doing string, f func(ctx context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		out, err := f(ctx)
		switch {
		case err == nil:
			return out
		case attempt == 100:
			t.Logf("%s: still %v", doing, err)
		case ctx.Err() != nil || postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable:
			t.Fatalf("%s: %v", doing, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (m logMember) parts(t testing.TB) []postrider.LogPartition {
	t.Helper()
	return patiently(t, "list the partitions", func(ctx context.Context) ([]postrider.LogPartition, error) { return m.Partitions(ctx) })
}

// open opens a reader that is closed at the end of the test.
func (m logMember) open(t testing.TB, p postrider.LogPartition, after int64) postrider.LogReader {
	t.Helper()
	r := patiently(t, "read the log", func(ctx context.Context) (postrider.LogReader, error) { return m.ReadLog(ctx, p, after) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = r.Close(ctx) // some tests have broken it
	})
	return r
}

// read reads n messages, and checks that their offsets rise.
func read(t testing.TB, r postrider.LogReader, n int) (out []*postrider.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(out) < n {
		got, err := r.Read(ctx, n-len(out), 1<<20)
		if err != nil {
			t.Fatalf("read %d of %d: %v", len(out)+1, n, err)
		}
		if len(got) == 0 || len(got) > n-len(out) {
			t.Fatalf("read %d, want 1 to %d", len(got), n-len(out))
		}
		for _, d := range got {
			if k := len(out); k > 0 && out[k-1].Position.Offset >= d.Position.Offset {
				t.Errorf("offset %d comes after %d", d.Position.Offset, out[k-1].Position.Offset)
			}
			if d.Settler != nil || d.Position.Mark == "" || len(d.Position.Mark) > 1000 {
				t.Errorf("delivery at %+v has a settler or no mark", d.Position)
			}
			out = append(out, d)
		}
	}
	return out
}

func deliveredIDs(deliveries []*postrider.Delivery) (out []string) {
	for _, d := range deliveries {
		out = append(out, d.Message.ID)
	}
	return out
}

// all reads what every partition has, from the beginning.
func (m logMember) all(t testing.TB) (out []*postrider.Delivery) {
	t.Helper()
	for _, p := range m.parts(t) {
		if p.End < p.First {
			continue
		}
		r := m.open(t, p, p.First-1)
		for len(out) == 0 || out[len(out)-1].Position.Partition != p.Name || out[len(out)-1].Position.Offset < p.End {
			d := read(t, r, 1)[0]
			if d.Position.Partition != p.Name || d.Position.Incarnation != p.Incarnation || d.Position.Offset < p.First {
				t.Errorf("message of %+v stands at %+v", p, d.Position)
			}
			out = append(out, d)
		}
	}
	return out
}

func sameSet(t testing.TB, got, want []string) {
	t.Helper()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func testLogCapabilities(t *testing.T, l *logTest) {
	if c := l.member.Capabilities(); !c.Log || !c.Ordered || !c.Positions {
		t.Errorf("capabilities are %+v, want Log, Ordered and Positions", c)
	}
	if _, err := l.member.Subscribe(t.Context()); err == nil || postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
		t.Errorf("subscribe: %v, want that there is no group", err)
	}
	for _, p := range l.member.parts(t) {
		if p.First != p.End+1 || p.Name == "" {
			t.Errorf("empty partition is %+v", p)
		}
	}
}

func testLogInOrder(t *testing.T, l *logTest) {
	first := l.publish(t, 60)
	got := l.member.all(t)
	sameSet(t, deliveredIDs(got), first)
	last := make(map[string]int64) // by key: the version
	for _, d := range got {
		if k := d.Message.Key; k != "" && d.Message.AggregateVersion <= last[k] {
			t.Errorf("message %s comes after version %d of its key", d.Message.ID, last[k])
		}
		last[d.Message.Key] = d.Message.AggregateVersion
		if state := l.verified(t, d.Position); state != postrider.PositionKept {
			t.Errorf("%+v is %v, want kept", d.Position, state)
		}
	}
	for _, p := range l.member.parts(t) { // and waits for more
		r, done := l.member.open(t, p, p.End), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			if got, err := r.Read(ctx, 1, 1<<20); err == nil && got[0].Position.Offset <= p.End {
				t.Errorf("a reader after %d returned %+v", p.End, got[0].Position)
			}
		}()
		l.publish(t, 1)
		cancel()
		<-done
	}
}

func (l *logTest) verified(t testing.TB, at postrider.Position) postrider.PositionState {
	t.Helper()
	return patiently(t, "verify", func(ctx context.Context) (postrider.PositionState, error) {
		return l.member.Log.VerifyPosition(ctx, at)
	})
}

func testLogFromOffset(t *testing.T, l *logTest) {
	l.publish(t, 40)
	all := l.member.all(t)
	for i := 0; i < len(all)-1; i += 7 {
		if all[i].Position.Partition != all[i+1].Position.Partition {
			continue
		}
		p := l.part(t, all[i].Position.Partition)
		d := read(t, l.member.open(t, p, all[i].Position.Offset), 1)[0]
		if d.Position != all[i+1].Position || d.Message.ID != all[i+1].Message.ID {
			t.Errorf("after %+v comes %+v, want %+v", all[i].Position, d.Position, all[i+1].Position)
		}
	}
}

func (l *logTest) part(t testing.TB, name string) postrider.LogPartition {
	t.Helper()
	for _, p := range l.member.parts(t) {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no partition %s", name)
	return postrider.LogPartition{}
}

func testLogTwoReaders(t *testing.T, l *logTest) {
	want := l.publish(t, 20)
	other := l.join(t)
	for range 2 {
		sameSet(t, deliveredIDs(l.member.all(t)), want)
		sameSet(t, deliveredIDs(other.all(t)), want)
	}
}

func testLogLimits(t *testing.T, l *logTest) {
	msgs := batch(l.Topic, 6, 1, "a")
	for i, m := range msgs {
		m.Payload = fmt.Appendf(nil, "%q", make([]byte, 1000*(1+i)))
	}
	l.out.deliver(t.Context(), t, msgs)
	p := l.part(t, l.member.all(t)[0].Position.Partition)
	r, n := l.member.open(t, p, p.First-1), 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n < len(msgs) {
		got, err := r.Read(ctx, 3, 500) // every message is larger
		if err != nil || len(got) == 0 || len(got) > 3 {
			t.Fatalf("read %d, %v; want 1 to 3", len(got), err)
		}
		for _, d := range got {
			if d.Message.ID != msgs[n].ID {
				t.Errorf("message %d is %s, want %s", n, d.Message.ID, msgs[n].ID)
			}
			n++
		}
	}
}

func testLogPoison(t *testing.T, l *logTest) {
	l.publish(t, 4)
	bad := batch(l.Topic, 1, 1<<20, "a")[0]
	bad.Type, bad.Payload = "poison", []byte(`{"no":"message"}`)
	bad.FillDefaults("brokertest", time.Now())
	l.Poison(t, bad)
	l.publish(t, 4)
	poisoned := 0
	for _, d := range l.member.all(t) {
		if d.Err != nil {
			poisoned++
			if string(d.Raw) != string(bad.Payload) || d.Message.ID != bad.ID || d.Message.Key != bad.Key {
				t.Errorf("of %+v this was read: %+v, raw %.100q", bad, d.Message, d.Raw)
			}
		}
	}
	if poisoned != 1 {
		t.Errorf("what is no message came %d times, want once", poisoned)
	}
}

func testLogCancelled(t *testing.T, l *logTest) {
	want := l.publish(t, 1)
	p := l.part(t, l.member.all(t)[0].Position.Partition)
	r := l.member.open(t, p, p.First-1)
	read(t, r, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Read(ctx, 1, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read: %v, want that the time is over", err)
	}
	r = l.member.open(t, p, p.First-1)
	if got := deliveredIDs(read(t, r, 1)); !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func testLogClosed(t *testing.T, l *logTest) {
	l.publish(t, 4)
	p := l.part(t, l.member.all(t)[0].Position.Partition)
	r := l.member.open(t, p, p.First-1)
	read(t, r, 1)
	for range 2 {
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if got, err := r.Read(t.Context(), 1, 1<<20); err == nil {
		t.Errorf("read %v after close", got[0].Position)
	}
}
