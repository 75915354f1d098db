package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

var brokerTests = []test{
	{name: "FailedPublishIsTriedAgainWithItsAttemptCounted", run: failedPublish},
	{name: "LongOutageKillsNothing", run: longOutage, statements: true},
	{name: "AcceptedWithoutAnAnswerIsSentAgain", run: acceptedWithoutAnswer},
	{name: "PartialFailureKeepsTheOrder", run: partialFailure},
	{name: "DeadBrokerStopsOnlyItsOwnRelay", run: deadBrokerStopsItsOwn},
	{name: "SlowBrokerKeepsItsLeases", run: slowBroker},
}

// broker is a destination whose answers the test controls.
type broker struct {
	accepted journal
	mu       sync.Mutex
	// answer, if set, returns for a batch how many messages to accept and which errors to report.
	answer func(msgs []*postrider.Message) (accept int, errs []error)
}

func (b *broker) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

func (b *broker) Publish(_ context.Context, msgs []*postrider.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	accept, errs := len(msgs), []error(nil)
	if b.answer != nil {
		accept, errs = b.answer(msgs)
	}
	for _, m := range msgs[:accept] {
		b.accepted.note(m, "")
	}
	return errs
}

func (b *broker) tell(answer func(msgs []*postrider.Message) (int, []error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// all reports the same error for each message of a batch.
func all(msgs []*postrider.Message, err error) []error {
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// sendTo runs a relay that publishes to a broker.
func (e *env) sendTo(name string, b *broker) *process {
	e.t.Helper()
	cfg := e.quick()
	cfg.Name, cfg.Publisher = name, b
	return e.start(cfg, nil)
}

func failedPublish(e *env) {
	b := new(broker)
	fails := 1
	b.tell(func(msgs []*postrider.Message) (int, []error) {
		if fails > 0 {
			fails--
			return 0, all(msgs, errors.New("message has no stream"))
		}
		return len(msgs), nil
	})
	e.sendTo("r", b)
	id := e.sendKeys("order/1")[0]
	e.untilLen(&b.accepted, 1)
	e.untilSettled("r")
	if got := b.accepted.attempts(id); fmt.Sprint(got) != "[2]" {
		e.t.Errorf("accepted with attempts %v, want the second one", got)
	}
	if st := e.status("r"); st.Failed != 1 || st.Dead.N != 0 {
		e.t.Errorf("%d failed attempts and %d dead, want 1 and 0", st.Failed, st.Dead.N)
	}
}

// longOutage: the broker is unavailable for much longer than all attempts of a message would take.
func longOutage(e *env) {
	b := new(broker)
	var calls int
	b.tell(func(msgs []*postrider.Message) (int, []error) {
		calls += len(msgs)
		return 0, all(msgs, postrider.Unavailable(errors.New("connection refused")))
	})
	outage := e.longer(time.Hour, time.Second)
	cfg := e.spanning(outage)
	cfg.Publisher = b
	e.start(cfg, nil)
	var want []string
	for i := range 30 {
		want = append(want, e.sendKeys(fmt.Sprintf("order/%d", i%5), "")...)
	}
	e.elapse(outage)
	if st := e.status("r"); st.Dead.N != 0 || st.Failed != 0 || st.Parked.N != 0 || st.Held.N != 0 || st.Backlog.N != int64(len(want)) {
		e.t.Errorf("during the outage: %+v; want everything in the backlog and nothing else", st)
	}
	b.mu.Lock()
	if limit := len(want)*4 + int(outage/time.Second)*10; calls > limit {
		e.t.Errorf("%d messages were sent to a broker that is away for %s, want at most %d", calls, outage, limit)
	}
	b.mu.Unlock()
	b.tell(nil)
	e.untilLen(&b.accepted, len(want))
	e.untilSettled("r")
	e.wantSet("accepted", b.accepted.ids(""), want)
	for _, n := range b.accepted.all() {
		if n.attempt != 1 {
			e.t.Errorf("attempt %d at %s after the outage; a broker that is away counts for nothing", n.attempt, n.id)
		}
	}
}

func acceptedWithoutAnswer(e *env) {
	b := new(broker)
	lost := true
	b.tell(func(msgs []*postrider.Message) (int, []error) {
		if lost {
			lost = false
			return len(msgs), all(msgs, errors.New("no answer in time"))
		}
		return len(msgs), nil
	})
	want := e.sendKeys("order/1")
	e.sendTo("r", b)
	e.untilLen(&b.accepted, 2)
	e.untilSettled("r")
	e.wantIDs("accepted", b.accepted.ids(""), append(want, want...))
}

// partialFailure now and then refuses a message in the middle of a batch together with the later messages of its key, as the
// contract of publishers requires.
func partialFailure(e *env) {
	b := new(broker)
	calls := 0
	b.tell(func(msgs []*postrider.Message) (int, []error) {
		calls++
		if calls%3 == 0 || calls > 30 {
			return len(msgs), nil
		}
		errs := make([]error, len(msgs))
		at := len(msgs) / 2
		for i, m := range msgs {
			if i >= at && m.Key == msgs[at].Key {
				errs[i] = errRefused
			}
		}
		for i, m := range msgs {
			if errs[i] == nil {
				b.accepted.note(m, "")
			}
		}
		return 0, errs
	})
	const keys, each = 5, 30
	order := make(map[string][]string)
	var msgs []*postrider.Message
	for i := range keys * each {
		m := e.message(fmt.Sprintf("order/%d", i%keys))
		order[m.Key] = append(order[m.Key], m.ID)
		msgs = append(msgs, m)
	}
	e.publish(msgs...)
	e.sendTo("r", b)
	e.untilLen(&b.accepted, keys*each)
	e.untilSettled("r")
	for key, want := range order {
		e.wantIDs("accepted of key "+key, b.accepted.ids(key), want)
	}
}

func deadBrokerStopsItsOwn(e *env) {
	dead, healthy := new(broker), new(broker)
	dead.tell(func(msgs []*postrider.Message) (int, []error) {
		return 0, all(msgs, postrider.Unavailable(errors.New("connection refused")))
	})
	var j journal
	e.sendTo("to-dead", dead)
	e.sendTo("to-healthy", healthy)
	e.start(e.quick(), j.handler(""))
	var want []string
	for range 20 {
		want = append(want, e.sendKeys("order/1", "order/2", "")...)
	}
	e.untilLen(&healthy.accepted, len(want))
	e.untilLen(&j, len(want))
	e.untilSettled("to-healthy")
	e.untilSettled("r")
	if n := dead.accepted.len(); n > 0 {
		e.t.Errorf("%d messages reached a dead broker", n)
	}
	dead.tell(nil)
	e.untilLen(&dead.accepted, len(want))
	for _, key := range []string{"order/1", "order/2"} {
		e.wantIDs("order of "+key, dead.accepted.ids(key), j.ids(key))
	}
}

// slowBroker takes longer for a batch than a lease lasts, while another process would take over at once.
func slowBroker(e *env) {
	b := new(broker)
	slow := true
	b.tell(func(msgs []*postrider.Message) (int, []error) {
		if slow {
			slow = false
			e.elapse(e.lease() * 3 / 2)
		}
		return len(msgs), nil
	})
	want := e.publish(e.messages("order/1", 10)...)
	e.sendTo("r", b)
	e.sendTo("r", b)
	e.untilLen(&b.accepted, len(want))
	e.untilSettled("r")
	e.wantIDs("accepted", b.accepted.ids("order/1"), want)
}
