package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var transactionTests = []test{
	{name: "CommitMakesMessagesVisible", run: commitMakesMessagesVisible},
	{name: "RollbackLeavesNothing", run: rollbackLeavesNothing},
	{name: "RollbackToSavepointUndoesOnlyWhatFollowed", run: rollbackToSavepoint, statements: true},
	{name: "ContextEndsDuringTheCommit", run: contextEndsDuringTheCommit},
	{name: "PublishedReturnsWhatTheTransactionWrote", run: publishedReturnsWhatWasWritten},
	{name: "PublishedInTxReturnsWhatIsNotSentYet", run: publishedInTx, statements: true},
	{name: "InsertNeedsAnOpenTransaction", run: insertNeedsAnOpenTransaction},
	{name: "MessagesKeepTheOrderOfInsertion", run: messagesKeepTheOrderOfInsertion},
	{name: "EveryFieldSurvives", run: everyFieldSurvives, statements: true},
	{name: "EmptyFieldsSurvive", run: emptyFieldsSurvive},
	{name: "CallersMayReuseWhatTheyInserted", run: callersMayReuse},
	{name: "TimeOfTheFactPlaysNoPartInDelivery", run: factTimePlaysNoPart},
	{name: "HundredThousandMessagesInOneTransaction", run: hundredThousandMessages},
	{name: "AnotherProcessSeesEverything", run: anotherProcessSeesEverything},
	{name: "WakeSignalsSubscribersAndCoalesces", run: wakeSignals},
	{name: "ListenFindsWhatOtherProcessesPublish", run: listenFinds, statements: true},
}

func commitMakesMessagesVisible(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	msgs := append(e.messages("order/1", 2), e.message(""))
	e.insert(tx, msgs...)
	e.wantSet("fetched before the commit", recordIDs(w.drain()), nil)
	e.commit(tx)
	e.wantSet("fetched after the commit", recordIDs(w.drain()), ids(msgs))
	e.wantSet("fetched once more", recordIDs(w.drain()), nil)
}

func rollbackLeavesNothing(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	e.insert(tx, e.messages("order/1", 3)...)
	e.must(tx.rollback(e.ctx), "rollback")
	kept := e.publishKeys("order/1")
	e.wantSet("fetched after a rollback and a commit", recordIDs(w.drain()), kept)
}

func rollbackToSavepoint(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	before, undone, after := e.messages("order/1", 2), e.messages("order/1", 2), e.messages("order/1", 1)
	all := slices.Concat(ids(before), ids(undone), ids(after))
	e.insert(tx, before...)
	e.must(tx.savepoint(e.ctx, "one"), "savepoint")
	e.insert(tx, undone...)
	written, err := tx.written(e.ctx, all...)
	e.must(err, "written")
	e.wantSet("written before rolling back to the savepoint", written, all[:4])
	e.must(tx.rollbackTo(e.ctx, "one"), "rollback to savepoint")
	e.insert(tx, after...)
	kept := slices.Concat(ids(before), ids(after))
	written, err = tx.written(e.ctx, all...)
	e.must(err, "written")
	e.wantSet("written after rolling back to the savepoint", written, kept)
	e.commit(tx)
	e.wantIDs("fetched", recordIDs(w.drain()), kept)
}

// publishedReturnsWhatWasWritten: neither messages of others nor those that a savepoint has undone, and all fields of the rest.
func publishedReturnsWhatWasWritten(e *env) {
	e.publishKeys("order/1", "")
	tx := e.open()
	got, err := tx.published(e.ctx)
	e.must(err, "published, before anything was")
	e.wantIDs("published before anything was", ids(got), nil)
	full := e.message("order/1")
	full.Headers, full.Payload, full.Subject, full.Tenant = map[string]string{"a": "ü"}, []byte("\x00\xff"), "s", "t"
	full.AggregateVersion, full.CorrelationID, full.CausationID = 7, "c", "d"
	later := e.message("")
	later.DeliverAt = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	e.insert(tx, full, later)
	e.must(tx.savepoint(e.ctx, "one"), "savepoint")
	e.insert(tx, e.messages("order/1", 2)...)
	e.must(tx.rollbackTo(e.ctx, "one"), "rollback to savepoint")
	last := e.message("order/2")
	e.insert(tx, last)
	got, err = tx.published(e.ctx)
	e.must(err, "published")
	e.wantIDs("published", ids(got), ids([]*postrider.Message{full, later, last}))
	e.wantSame(got[0], full)
	e.wantSame(got[1], later)
	if !got[1].DeliverAt.Equal(later.DeliverAt) || !got[0].DeliverAt.IsZero() || got[0].Sequence == 0 || got[0].CreatedAt.IsZero() {
		e.t.Errorf("got %+v and %+v, want the delivery time of the second to be %s, and sequence and creation time", got[0], got[1], later.DeliverAt)
	}
	e.commit(tx)
	if _, err := tx.published(e.ctx); !errors.Is(err, store.ErrNoTransaction) {
		e.t.Errorf("published after the commit: %v, want an error that is ErrNoTransaction", err)
	}
}

// publishedInTx: a store that sends messages only with the next statement returns those, too.
func publishedInTx(e *env) {
	m := e.message("order/1")
	got, err := e.publishedInTx(e.ctx, m)
	e.must(err, "publish in a transaction")
	e.wantIDs("published in the transaction", ids(got), []string{m.ID})
}

func insertNeedsAnOpenTransaction(e *env) {
	expect := func(when string, err error) {
		e.t.Helper()
		if !errors.Is(err, store.ErrNoTransaction) {
			e.t.Errorf("insert %s: %v, want an error that is ErrNoTransaction", when, err)
		}
	}
	tx := e.open()
	e.commit(tx)
	expect("after the commit", tx.insert(e.ctx, e.message("a")))
	e.must(tx.rollback(e.ctx), "rollback after commit, which is harmless")
	tx = e.open()
	e.must(tx.rollback(e.ctx), "rollback")
	expect("after the rollback", tx.insert(e.ctx, e.message("a")))
	expect("without a transaction", e.insertNowhere(e.ctx, e.message("a")))
	if got := e.worker("r", "a").drain(); len(got) > 0 {
		e.t.Errorf("refused messages were fetched: %s", brief(recordIDs(got)))
	}
}

func messagesKeepTheOrderOfInsertion(e *env) {
	var want []string
	for range 3 {
		tx := e.open()
		for range 3 {
			msgs := e.messages("order/1", 7)
			e.insert(tx, msgs...)
			want = append(want, ids(msgs)...)
		}
		e.commit(tx)
	}
	e.wantIDs("fetched of one key", recordIDs(e.worker("r", "a").drain()), want)
}

// everyFieldSurvives writes values that are hard to store: bytes that are not text, characters of up to four bytes, the longest
// values.
func everyFieldSurvives(e *env) {
	payload := make([]byte, 70_000)
	for i := range payload {
		payload[i] = byte(i)
	}
	headers := map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "empty": ""}
	for i := range 60 {
		headers[fmt.Sprintf("Ünïcode-😀-%d", i)] = `quotes " ' \ , { } [ ] $1 ? % ` + "\n\t" + strings.Repeat("字", 40)
	}
	m := &postrider.Message{
		ID: "😀" + strings.Repeat("i", 60), Type: strings.Repeat("t", 124) + "😀", Source: "https://example.org/søurce?a=b#c",
		Topic: strings.Repeat("ö", 124), Key: "ordér/" + strings.Repeat("🚚", 60), Subject: `sub"ject'\`,
		Tenant: strings.Repeat("é", 32), Time: time.Date(2024, 2, 29, 23, 59, 59, 123_456_000, time.FixedZone("", 3600)),
		SchemaVersion: 2_147_483_647, AggregateVersion: 9_223_372_036_854_775_807, ContentType: "application/vnd.x+json; charset=utf-8",
		Headers: headers, CorrelationID: strings.Repeat("c", 128), CausationID: "cause-'\"\\", Payload: payload,
	}
	e.publish(m)
	got := e.worker("r", "a").drain()
	if len(got) != 1 {
		e.t.Fatalf("fetched %d records, want 1", len(got))
	}
	e.wantSame(got[0].Message, m)
	if got[0].Message.Sequence <= 0 {
		e.t.Errorf("sequence %d is not positive", got[0].Message.Sequence)
	}
	if !got[0].Message.Time.Equal(m.Time) {
		e.t.Errorf("time %s, want %s to the microsecond", got[0].Message.Time, m.Time)
	}
}

func emptyFieldsSurvive(e *env) {
	m := e.message("")
	m.Payload, m.Headers = nil, nil
	e.publish(m)
	got := e.worker("r", "a").drain()
	if len(got) != 1 {
		e.t.Fatalf("fetched %d records, want 1", len(got))
	}
	e.wantSame(got[0].Message, m)
}

// wantSame compares the message that a publisher wrote with the one that is delivered.
func (e *env) wantSame(got, want *postrider.Message) {
	e.t.Helper()
	check := func(field string, same bool, got, want any) {
		e.t.Helper()
		if !same {
			e.t.Errorf("%s is %.200q, want %.200q", field, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	for _, f := range []struct{ name, got, want string }{
		{"ID", got.ID, want.ID}, {"Type", got.Type, want.Type}, {"Source", got.Source, want.Source},
		{"Topic", got.Topic, want.Topic}, {"Key", got.Key, want.Key}, {"Subject", got.Subject, want.Subject},
		{"Tenant", got.Tenant, want.Tenant}, {"ContentType", got.ContentType, want.ContentType},
		{"CorrelationID", got.CorrelationID, want.CorrelationID}, {"CausationID", got.CausationID, want.CausationID},
		{"Payload", string(got.Payload), string(want.Payload)},
	} {
		check(f.name, f.got == f.want, f.got, f.want)
	}
	check("SchemaVersion", got.SchemaVersion == want.SchemaVersion, got.SchemaVersion, want.SchemaVersion)
	check("AggregateVersion", got.AggregateVersion == want.AggregateVersion, got.AggregateVersion, want.AggregateVersion)
	check("Headers", maps.Equal(got.Headers, want.Headers), got.Headers, want.Headers)
	check("Time", got.Time.Sub(want.Time).Abs() < 2*time.Microsecond, got.Time, want.Time)
}

func callersMayReuse(e *env) {
	m := e.message("order/1")
	m.Headers = map[string]string{"a": "1"}
	tx := e.open()
	e.insert(tx, m)
	m.Payload[0], m.Headers["a"] = 'X', "2"
	e.commit(tx)
	for _, id := range []string{"a", "b"} {
		got := e.worker("r-"+id, id).drain()
		if len(got) != 1 || string(got[0].Message.Payload) != `{"n":1}` || got[0].Message.Headers["a"] != "1" {
			e.t.Fatalf("relay %s did not get the message as it was inserted: %+v", id, got)
		}
		got[0].Message.Payload[0], got[0].Message.Headers["a"] = 'Y', "3"
	}
}

// factTimePlaysNoPart: by the publisher's clock, messages are backdated or in the future; they are delivered in the same order
// and at the same time as any other.
func factTimePlaysNoPart(e *env) {
	var msgs []*postrider.Message
	for _, offset := range []time.Duration{time.Hour, -10 * 365 * 24 * time.Hour, 0, 365 * 24 * time.Hour} {
		m := e.message("order/1")
		m.Time = m.Time.Add(offset)
		msgs = append(msgs, m)
	}
	e.publish(msgs...)
	got := e.worker("r", "a").drain()
	e.wantIDs("fetched", recordIDs(got), ids(msgs))
	for _, r := range got {
		if r.Delay > 0 {
			e.t.Errorf("message %s with time %s has to wait for %s", r.Message.ID, r.Message.Time, r.Delay)
		}
		if ago := time.Since(r.Message.CreatedAt).Abs(); ago > time.Minute {
			e.t.Errorf("message %s was written %s from now, by its CreatedAt %s", r.Message.ID, ago, r.Message.CreatedAt)
		}
	}
}

func hundredThousandMessages(e *env) {
	const chunk = 10_000
	count := e.amount(100_000)
	w := e.worker("r", "a")
	tx := e.open()
	for i := range count / chunk {
		msgs := make([]*postrider.Message, chunk)
		for j := range msgs {
			msgs[j] = e.message(fmt.Sprintf("order/%d", (i*chunk+j)%1_000))
		}
		e.insert(tx, msgs...)
	}
	e.commit(tx)
	last, seen := make(map[string]int64), 0
	for {
		n, more := 0, false
		for _, b := range w.fetch(1_000, 8<<20) {
			for _, r := range b.Entries {
				if m := r.Message; m.Sequence <= last[m.Key] {
					e.t.Fatalf("key %s: sequence %d after %d", m.Key, m.Sequence, last[m.Key])
				} else {
					last[m.Key] = m.Sequence
				}
			}
			n, more = n+len(b.Entries), more || b.More
		}
		if seen += n; n == 0 && !more {
			break
		}
	}
	if seen != count {
		e.t.Fatalf("fetched %d messages, published %d", seen, count)
	}
}

func anotherProcessSeesEverything(e *env) {
	w := e.worker("r", "a")
	first := e.publishKeys("order/1", "order/2", "")
	e.wantSet("fetched", recordIDs(w.drain()), first)
	w.settleRead()
	p := e.partition("held")
	e.publishKeys("held")
	held := w.drain()[0]
	w.settle(store.Settlement{Partition: p, Cursor: w.read[p], Moved: true,
		Parked: []store.ParkOutcome{{Sequence: held.Message.Sequence, Key: "held", FromLog: true, Reason: store.ParkRetry, Waits: true, Attempts: 3, Cause: "no"}},
		Held:   []store.HeldKey{{Key: "held", Sequence: held.Message.Sequence, Reason: store.ParkRetry, Attempts: 3}},
	})
	second := e.publishKeys("order/1")
	e.must(e.Leave(e.ctx, "r", w.owner), "leave")

	other := newEnv(e.t, e.ctx, e.suite, e.reopen(e.t), e.partitions)
	if n, err := other.Partitions(e.ctx); err != nil || n != e.partitions {
		e.t.Fatalf("partitions after opening again: %d, %v; want %d", n, err, e.partitions)
	}
	w = other.worker("r", "b")
	e.wantSet("fetched by the other process", recordIDs(w.drain()), second)
	e.wantIDs("held keys that the other process sees", w.leases[p].Parked.Keys, []string{"held"})
	due := w.due()
	if len(due.Runs) != 1 || due.Runs[0].Key != "held" || len(due.Runs[0].Entries) != 1 || due.Runs[0].Entries[0].Attempts != 3 {
		e.t.Fatalf("due for the other process: %+v, want the held key with its message after 3 attempts", due.Runs)
	}
	e.wantSame(due.Runs[0].Entries[0].Message, held.Message)
}

func wakeSignals(e *env) {
	a, endA := e.Subscribe(nil)
	b, endB := e.Subscribe(nil)
	defer endB()
	endA()
	for range 10 {
		e.Wake()
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-b:
	case <-timeout.C:
		e.t.Fatal("Wake did not reach a subscriber")
	}
	select {
	case <-b:
		e.t.Error("ten calls of Wake before the subscriber looked came as more than one signal")
	case <-a:
		e.t.Error("a subscription that had ended was signalled")
	default:
	}
	c, endC := e.Subscribe(func(topic string) bool { return topic == "orders" })
	defer endC()
	for _, topics := range [][]string{nil, {"orders"}, {"stock", "orders"}} {
		e.Wake(topics...)
		select {
		case <-c:
		default:
			e.t.Errorf("Wake with topics %q did not reach a subscriber of orders", topics)
		}
	}
	e.Wake("stock")
	select {
	case <-b:
	default:
		e.t.Error("Wake with a topic did not reach a subscriber of all topics")
	}
}

// listenFinds: publishers that wake nobody, e.g. in SQL, are found too.
func listenFinds(e *env) {
	other := e.reopen(e.t)
	l := other.listener()
	if l == nil {
		return // every publisher is in this process
	}
	woken, unsubscribe := other.Subscribe(nil)
	defer unsubscribe()
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Listen(ctx) }()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for range 5 { // listening begins with up to two signals
		e.publishKeys("order/1")
		select {
		case <-woken:
		case <-timeout.C:
			e.t.Fatal("Listen did not find a message")
		}
	}
	cancel()
	e.must(<-ended, "listen")
}
