package inboxtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

func inputScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"UndecodableDiesAndItsKeyGoesOn", undecodableDies[Tx]},
		{"UnreadableKeepsWhatCouldBeReadAndItsKey", unreadableKeeps[Tx]},
		{"WhatDatabasesCannotHoldIsParkedAllTheSame", notHoldable[Tx]},
		{"WhatTheDatabaseRefusesIsStoredInPart", refusedInPart[Tx]},
		{"PanicOutsideTheHandlerIsTheMessagesFailure", panicOutside[Tx]},
		{"ErrorThatPanicsIsTheMessagesFailure", errorPanics[Tx]},
	}
}

func undecodableDies[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		def := postrider.Define[placed2](messageType)
		s.prepare = func(c *inbox.Consumer[Tx]) {
			w.must(inbox.Handle(c, def, func(ctx context.Context, tx Tx, m postrider.Typed[placed2]) error {
				return w.effect(ctx, tx, m.Message)
			}), "handle")
		}
		bad, good := w.message("a"), w.message("a")
		bad.Payload = []byte(`{"Cents":`)
		w.publish(bad, good)
		p := w.start(s)
		w.untilEffects(good.ID)
		w.until("dead", func() bool { return len(w.deadLetters("")) == 1 })
		if l := w.deadLetters("")[0]; l.Reason != postrider.Undecodable || l.Message.ID != bad.ID || l.Attempts != 1 {
			w.t.Errorf("dead letter is %+v", l)
		}
		w.untilQuiet()
		p.stop()
	})
}

// notHoldable: CloudEvents of other senders need not respect the limits of a message.
func notHoldable[Tx any](w *world[Tx]) {
	w.inEveryMode(func(w *world[Tx], s setting[Tx]) {
		long := strings.Repeat("long", 100)
		came := w.unstorable(long)
		var redriven atomic.Bool
		handler := func(ctx context.Context, tx Tx, m *postrider.Message) error {
			i, err := strconv.Atoi(string(m.Payload))
			if err != nil {
				return err
			}
			if c := came[i]; m.ID != c.ID || m.Type != c.Type || m.Source != c.Source || m.Key != c.Key || m.Subject != c.Subject ||
				m.Tenant != c.Tenant || m.CorrelationID != c.CorrelationID || !m.Time.Truncate(time.Microsecond).Equal(c.Time.Truncate(time.Microsecond)) || m.SchemaVersion != c.SchemaVersion ||
				!maps.Equal(m.Headers, c.Headers) {
				w.t.Errorf("message %d came as %+v and is handled as %+v", i, c, m)
			}
			switch {
			case redriven.Load():
			case m.Attempt < 3:
				return errBoom // here, and after parking
			case i >= 4:
				return postrider.Dead("not wanted", errBoom)
			}
			_, err = w.outbox.Publish(ctx, tx, &postrider.Message{ID: fmt.Sprint("effect-", i), Type: "effect"}) // the rest comes from the message
			return err
		}
		s.prepare = func(c *inbox.Consumer[Tx]) {
			w.must(errors.Join(c.HandleFunc(messageType, handler), c.HandleFunc(long, handler)), "handle")
		}
		w.publish(came...)
		p := w.start(s)
		w.until("the last eight are dead", func() bool { return len(w.deadLetters("")) == 8 })
		var archive bytes.Buffer
		if n, err := deadletter.New(w.store).Export(w.ctx, &archive, store.DeadFilter{}); n != 8 || err != nil {
			w.t.Fatalf("exported %d, %v", n, err)
		}
		redriven.Store(true)
		if n, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Relay: consumer}, "olga", 0); n != 8 || err != nil {
			w.t.Fatalf("redrove %d, %v", n, err)
		}
		var want []string
		for i := range came {
			want = append(want, fmt.Sprint("effect-", i))
		}
		w.untilEffects(want...)
		w.untilQuiet()
		w.redeliver(s, ids(came)...)
		w.until("duplicates", func() bool { return p.Stats().Duplicates >= int64(len(came)) && len(w.unsettled()) == 0 })
		if got := w.effects(); !s.queue && slices.Index(got, "effect-2") > slices.Index(got, "effect-3") {
			w.t.Errorf("order of one key: %v", got)
		}
		p.stop()
	})
}

// unstorable returns messages that some database cannot store, each with its index as payload.
func (w *world[Tx]) unstorable(long string) []*postrider.Message {
	headers := map[string]string{"binary": "\x00\xff", "\x00": "name", "plain": "text"}
	ours := map[string]string{inbox.OriginalHeader: `{"key":"\"b\""}`, inbox.PositionHeader: "here"}
	var came []*postrider.Message
	for i, m := range []postrider.Message{
		{ID: long + "0"}, {ID: long + "1"}, {ID: "\x002", Key: long}, {ID: "\x003", Key: long}, {Subject: "a\x00b\xff"},
		{Key: "a\x00", Headers: headers}, {Headers: ours}, {Type: long, Source: long, Tenant: long, CorrelationID: long},
		{Time: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},      // CloudEvents and Go have a year 0, PostgreSQL has none
		{Time: time.Unix(1_800_000_000_000, 5).UTC()},         // milliseconds written as seconds
		{Time: time.Unix(253402300799, 999_999_900).UTC()},    // DateTime.MaxValue of .NET
		{Time: time.Unix(-9e15, 0).UTC(), SchemaVersion: 1e9}, // no database holds it
	} {
		like := w.message(m.Key)
		m.ID, m.Type, m.Source = cmp.Or(m.ID, like.ID), cmp.Or(m.Type, like.Type), cmp.Or(m.Source, like.Source)
		m.Topic, m.ContentType, m.Payload = like.Topic, like.ContentType, []byte(strconv.Itoa(i))
		if m.Time.IsZero() {
			m.Time = like.Time
		}
		came = append(came, &m)
	}
	return came
}
