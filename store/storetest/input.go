package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Programs can write rows themselves, and some databases have no constraint that refuses a row that is no message. Insert does
// not check messages either, so it stands for such programs here.
var rowTests = []test{
	{name: "RowThatBreaksTheRulesIsDeadAndBlocksNobody", run: brokenRows},
	{name: "RowThatBreaksTheRulesHoldsItsKeyIfAsked", run: brokenRowHolds},
	{name: "TopicThatIsTooLongIsCountedAsUnrouted", run: longTopicIsCounted},
	{name: "DeliveryTimesOutsideOfAllCalendars", run: farDeliveryTimes},
	{name: "DeepPayloadIsExportedAndImported", run: deepPayload},
}

// brokenRow is a message that breaks one rule.
type brokenRow struct {
	rule string
	msg  *postrider.Message
}

// long is a text that no index takes: it cannot be compressed.
func long() string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 5_000)
	for i := range text {
		text[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[random.IntN(64)]
	}
	return string(text)
}

func (e *env) brokenRows(key string) []brokenRow {
	var out []brokenRow
	add := func(rule string, change func(m *postrider.Message)) {
		m := e.message(key)
		change(m)
		out = append(out, brokenRow{rule, m})
	}
	add("id", func(m *postrider.Message) { m.ID = long() })
	add("key", func(m *postrider.Message) { m.Key = long() })
	add("topic", func(m *postrider.Message) { m.Topic = long() })
	add("type", func(m *postrider.Message) { m.Type = long() })
	add("source", func(m *postrider.Message) { m.Source = long() })
	add("subject", func(m *postrider.Message) { m.Subject = long() })
	add("tenant", func(m *postrider.Message) { m.Tenant = long() })
	add("content_type", func(m *postrider.Message) { m.ContentType = "text/" + long() })
	add("correlation_id", func(m *postrider.Message) { m.CorrelationID = long() })
	add("causation_id", func(m *postrider.Message) { m.CausationID = long() })
	add("subject", func(m *postrider.Message) { m.Subject = "\xff" })
	add("subject", func(m *postrider.Message) { m.Subject = "a\x00b" })
	for _, year := range []int{-4_000, 0, 10_000, 200_000} {
		add("time", func(m *postrider.Message) { m.Time = time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC) })
	}
	return out
}

// writeRows writes each row in its own transaction and returns those that the database takes.
func (e *env) writeRows(rows []brokenRow) (written []brokenRow) {
	e.t.Helper()
	for _, row := range rows {
		tx := e.open()
		if err := tx.insert(e.ctx, row.msg); err != nil {
			e.t.Logf("a wrong %s is refused: %v", row.rule, err)
			e.must(tx.rollback(e.ctx), "roll back")
			continue
		}
		e.commit(tx)
		written = append(written, row)
	}
	return written
}

func brokenRows(e *env) {
	var j journal
	first := e.publishKeys("order/1", "")
	written := e.writeRows(e.brokenRows("order/1"))
	for _, row := range e.brokenRows("") {
		if row.rule != "key" {
			written = append(written, e.writeRows([]brokenRow{row})...)
		}
	}
	last := e.publishKeys("order/1", "", "order/2")
	e.start(e.quick(), j.handler(""))
	e.until("the good messages are delivered, and the others dead", func() bool {
		return j.len() >= 5 && e.status("r").Dead.N >= int64(len(written))
	})
	e.untilSettled("r")
	e.wantSet("delivered", j.ids(""), append(first, last...))
	var rules []string
	for _, l := range e.deadLetters(everyDead) {
		if l.Reason != postrider.Undecodable || l.Message.Topic == "" {
			e.t.Errorf("dead letter %+v of %+v", l, l.Message)
		}
		for _, row := range written {
			if strings.Contains(l.Cause, row.rule+" is") || strings.Contains(l.Cause, row.rule+" has") {
				rules = append(rules, row.rule)
				break
			}
		}
	}
	if len(rules) != len(written) {
		e.t.Errorf("%d of %d causes name the rule: %v", len(rules), len(written), rules)
	}
	var archive bytes.Buffer
	if n, err := deadletter.New(e.database).Export(e.ctx, &archive, everyDead); int(n) != len(written) || err != nil {
		e.t.Errorf("exported %d, %v; want %d", n, err, len(written))
	}
}

func brokenRowHolds(e *env) {
	var j journal
	cfg := e.quick()
	cfg.OnDead = relay.HoldKey
	var written []brokenRow
	for i, row := range e.brokenRows("") {
		if row.rule != "key" {
			row.msg.Key = fmt.Sprintf("order/%d", i)
		}
		written = append(written, e.writeRows([]brokenRow{row})...)
		e.publish(e.message(row.msg.Key[:min(len(row.msg.Key), 256)])) // of another key, if that is too long
	}
	e.start(cfg, j.handler(""))
	queued := int64(0)
	for _, row := range written {
		if row.rule != "key" {
			queued++
		}
	}
	e.until("dead, with the next message of each key queued", func() bool {
		st := e.status("r")
		return st.Dead.N == int64(len(written)) && st.Parked.N == queued
	})
	for h, err := range held.New(e).ListHeld(e.ctx, "r") {
		if e.must(err, "list held keys"); len(h.Key) > 256 || !h.NextAttempt.IsZero() {
			e.t.Errorf("held: %+v", h)
		}
	}
	for _, row := range written {
		if row.rule == "key" {
			continue
		}
		if n := len(j.ids(row.msg.Key)); n != 0 {
			e.t.Errorf("%d messages of key %s were delivered past the dead letter of a wrong %s", n, row.msg.Key, row.rule)
		}
	}
}

func longTopicIsCounted(e *env) {
	var j journal
	cfg := e.quick()
	cfg.Topics = []string{"orders"}
	m := e.message("order/1")
	m.Topic = long()
	written := e.writeRows([]brokenRow{{"topic", m}})
	good := e.publishKeys("order/1", "order/2")
	e.start(cfg, j.handler(""))
	e.untilLen(&j, 2)
	e.untilSettled("r")
	e.wantSet("delivered", j.ids(""), good)
	st, err := e.Status(e.ctx)
	e.must(err, "status")
	var counted int64
	for _, u := range st.Unrouted {
		if counted += u.Count; len(u.Topic) > 249 || !strings.HasPrefix(m.Topic, u.Topic) {
			e.t.Errorf("unrouted: %.300q", u.Topic)
		}
	}
	if int(counted) != len(written) {
		e.t.Errorf("%d messages are counted as unrouted, want %d", counted, len(written))
	}
}

// farDeliveryTimes: a time in the past is at once, and one after the year 9999 never comes.
func farDeliveryTimes(e *env) {
	var j journal
	early, never, good := e.message("order/1"), e.message("order/1"), e.message("order/1")
	early.DeliverAt = time.Date(-4_000, 1, 1, 0, 0, 0, 0, time.UTC)
	never.DeliverAt = time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC)
	written := e.writeRows([]brokenRow{{"deliver_at", early}, {"deliver_at", never}, {"", good}})
	e.start(e.quick(), func(_ context.Context, m *postrider.Message) error {
		if _, err := m.MarshalJSON(); err != nil {
			e.t.Errorf("message %s has no JSON form: %v", m.ID, err)
		}
		j.note(m, "")
		return nil
	})
	e.untilLen(&j, len(written)-1)
	e.until("the other waits", func() bool { return e.status("r").Parked.N == 1 })
	e.wantIDs("delivered", j.ids(""), []string{early.ID, good.ID})
}

func deepPayload(e *env) {
	w := e.worker("r", "a")
	m := e.message("order/1")
	m.Payload = []byte(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999))
	w.deadLetter("rejected", m, e.message(""))
	var archive bytes.Buffer
	if n, err := deadletter.New(e.database).Export(e.ctx, &archive, everyDead); n != 2 || err != nil {
		e.t.Fatalf("exported %d, %v", n, err)
	}
	other := e.suite.open(e.t, 1)
	if done, err := deadletter.New(other).Import(e.ctx, &archive, nil); done.New != 2 || err != nil {
		e.t.Fatalf("imported %+v, %v", done, err)
	}
	for l, err := range deadletter.New(other).ListDead(e.ctx, store.DeadFilter{Key: "order/1"}, 0, 0) {
		if e.must(err, "list"); string(l.Message.Payload) != string(m.Payload) {
			e.t.Errorf("a payload of %d bytes came as %d", len(m.Payload), len(l.Message.Payload))
		}
	}
}
