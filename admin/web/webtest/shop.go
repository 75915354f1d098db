// Package webtest has an outbox with something of everything that the pages of the administration show, for their tests.
package webtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// Hostile is a text that does harm where it is not escaped.
const Hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}` + "\u202egnp.\x1b[31m\u200b"

// Secret is in payloads, headers and causes, where no rule shows it.
const Secret = "4111111111111111"

// Shop is the outbox of a shop on a bad day: a relay without a process, one whose destination refuses messages and holds keys, a
// consumer with dead letters, stuck sagas, and others that work.
type Shop struct {
	*memory.Store
	ctx context.Context
	err error
	// Held is a held key, Dead the ID of a dead-lettered message, Delivered that of a delivered one.
	Held, Dead, Delivered string
}

// Open selects the open dead letters.
var Open = store.DeadFilter{}

// Of selects the dead letters of one cause.
func Of(c store.CauseCount) store.DeadFilter {
	return store.DeadFilter{Relay: c.Relay, Type: c.Type, Fingerprint: c.Fingerprint}
}

// Step carries out one step of each running redrive.
func (s *Shop) Step(ctx context.Context) error {
	dead := deadletter.New(s)
	for r, err := range dead.ListRedrives(ctx, store.RedriveRunning) {
		if err == nil {
			_, _, err = dead.StepRedrive(ctx, r.ID, 100)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Stop replaces the guard of a redrive that has one.
func (s *Shop) Stop(ctx context.Context, id int64, g store.RedriveGuard) error {
	return s.Change(ctx, store.Operation{Method: "Stop", Doing: "stop a redrive"}, func(w store.Writer) error {
		found, err := w.ListRecords(ctx, store.RecordQuery{Table: store.WorkRecords, Kind: "redrive", ID: strconv.FormatInt(id, 10), Limit: 1})
		if err != nil || len(found) == 0 {
			return fmt.Errorf("redrive %d has no guard: %w", id, err)
		}
		if found[0].Body, err = json.Marshal(g); err != nil {
			return err
		}
		return w.PutRecord(ctx, found[0])
	})
}

const partitions = 4

// lease is how long the processes of the shop live.
const lease = 24 * time.Hour

// New returns the shop. With hostile, names and texts of messages are hostile.
func New(ctx context.Context, hostile bool) (*Shop, error) {
	s := &Shop{Store: memory.New(memory.Config{Partitions: partitions}), ctx: ctx, Held: "order/42"}
	suffix, kind := "", "order.placed"
	if hostile {
		suffix, kind = Hostile, "order.placed"+Hostile
		s.Held = "order/42" + Hostile
	}
	s.idle("payments")
	s.idle("to-kafka")
	s.publish(kind, 400, func(i int) string { return fmt.Sprintf("order/%d", 1000+i%31) })
	s.settle("payments", nothing)
	s.settle("to-hook", deadLetters("400 bad request: total -%d for card "+Secret+" is negative"+suffix, 10))
	s.publish(kind, 3, func(int) string { return s.Held })
	s.publish("order.paid", 2, func(int) string { return "tenant/acme-industrial-holdings-gmbh/order/2026-11-22/0000917" })
	s.settle("to-hook", holds("503 service unavailable: upstream connect error for card "+Secret+suffix))
	s.settle("to-kafka", nothing)
	s.Delivered = s.publish(kind, 1, func(int) string { return "order/7" })[0]
	for _, name := range []string{"to-kafka", "payments", "to-hook"} {
		s.settle(name, nothing)
	}
	s.settle("to-nats", nothing)
	s.leave("to-nats")
	s.publish(kind, 117, func(i int) string { return fmt.Sprintf("order/%d", 2000+i) })
	s.settle("to-kafka", nothing)
	s.settle("payments", nothing)
	s.settle("to-hook", nothing)
	s.down("to-audit", "dial tcp 10.0.0.7:9092: connect: connection refused"+suffix)
	s.gated("fulfilment", "payment.charge"+suffix)
	s.consumer(suffix)
	s.sagas(suffix)
	return s, s.err
}

// Own lets the live processes of relays hold their partitions, as they do at work; nobody decides about what they hold.
func (s *Shop) Own() error {
	for _, name := range []string{"fulfilment", "payments", "to-audit", "to-hook", "to-kafka"} {
		var claims []store.LeaseClaim
		for p := range partitions {
			claims = append(claims, store.LeaseClaim{Partition: p, Token: store.NewToken()})
		}
		_, err := s.Acquire(s.ctx, name, owner(name), store.AcquireRequest{TTL: lease, Claims: claims})
		s.do(err)
	}
	return s.err
}

func (s *Shop) do(err error) { s.err = errors.Join(s.err, err) }

// publish publishes n messages and returns their IDs.
func (s *Shop) publish(kind string, n int, key func(i int) string) (ids []string) {
	tx, err := s.Begin(s.ctx)
	s.do(err)
	for i := range n {
		m := &postrider.Message{
			Type: kind, Topic: "orders", Key: key(i), Subject: "customer/ada", CorrelationID: "fulfilment-4711", Tenant: "acme", Headers: map[string]string{"authorization": Secret, "trace": "on"},
			Payload: fmt.Appendf(nil, `{"number":%d,"currency":"EUR","total":-3,"customer":{"name":"Ada","card":"%s"},"lines":[`+
				`{"sku":"A-1041","quantity":1,"price":1200},{"sku":"VOUCHER-X","quantity":1,"price":-1203}]}`, 1000+i, Secret),
		}
		m.FillDefaults("shop", time.Now())
		ids = append(ids, m.ID)
		s.do(s.Insert(s.ctx, tx, []*postrider.Message{m}))
	}
	s.do(s.Commit(s.ctx, tx))
	return ids
}

func owner(name string) store.Owner {
	return store.Owner{ID: name + "-host-a-1", Host: "host-a", Version: "v1.4.0", Topics: []string{"*"}}
}

func (s *Shop) idle(name string) { s.settle(name, nothing) }

// down publishes a message that a relay cannot send, since its destination is down.
func (s *Shop) down(name, cause string) {
	s.idle(name)
	s.publish("order.placed", 1, func(int) string { return "order/9" })
	for _, other := range []string{"payments", "to-kafka", "to-hook"} {
		s.settle(other, nothing)
	}
	process := owner(name)
	process.Destination = store.Destination{State: store.DestinationDown, For: 4*time.Minute + 12*time.Second, NextTry: 3 * time.Second, Error: cause}
	_, err := s.Heartbeat(s.ctx, name, process, lease)
	s.do(err)
}

// gated publishes a message that a relay does not hand to its handlers, since they need an operation whose breaker is open.
func (s *Shop) gated(name, operation string) {
	s.idle(name)
	s.publish("order.placed", 1, func(int) string { return "order/10" })
	for _, other := range []string{"payments", "to-kafka", "to-hook"} {
		s.settle(other, nothing)
	}
	process := owner(name)
	process.Gate = store.Gate{Closed: true, On: operation, For: 48 * time.Second, NextTry: 12 * time.Second}
	_, err := s.Heartbeat(s.ctx, name, process, lease)
	s.do(err)
}

func (s *Shop) leave(name string) { s.do(s.Leave(s.ctx, name, owner(name))) }

type outcome func(*store.Settlement, *postrider.Message)

func nothing(*store.Settlement, *postrider.Message) {}

// settle makes a relay read the log to its end, and settle each message as decide says.
func (s *Shop) settle(name string, decide outcome) {
	if _, err := s.Heartbeat(s.ctx, name, owner(name), lease); err != nil {
		s.do(err)
		return
	}
	for p := range partitions {
		token := store.NewToken()
		leases, err := s.Acquire(s.ctx, name, owner(name), store.AcquireRequest{TTL: lease, Claims: []store.LeaseClaim{{Partition: p, Token: token}}})
		if s.do(err); len(leases) != 1 {
			s.do(fmt.Errorf("%s has no lease of partition %d", name, p))
			return
		}
		l := leases[0]
		batches, err := s.Fetch(s.ctx, name, store.FetchRequest{
			Limit: 1000, MaxBytes: 1 << 24, Partitions: []store.FetchPartition{{LeaseRef: l.Ref(), After: l.Cursor}},
		})
		s.do(err)
		settled := store.Settlement{Partition: p, Token: l.Token, Number: l.Settled + 1}
		for _, b := range batches {
			settled.Cursor, settled.Moved = b.Next, true
			for _, e := range b.Entries {
				settled.DeliveredCount++
				decide(&settled, e.Message)
			}
		}
		out, err := s.Settle(s.ctx, name, []store.Settlement{settled})
		if s.do(err); len(out.Lost)+len(out.Failed) > 0 {
			s.do(fmt.Errorf("%s: %+v", name, out))
		}
		s.do(s.Release(s.ctx, name, []store.LeaseRef{l.Ref()}))
	}
}

// deadLetters makes every second message a dead letter.
func deadLetters(cause string, attempts int) outcome {
	n := 0
	return func(s *store.Settlement, m *postrider.Message) {
		if n++; n%2 == 0 {
			return
		}
		s.Dead = append(s.Dead, store.DeadOutcome{
			Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: "attempts exhausted", Cause: fmt.Sprintf(cause, n%9+1), Attempts: attempts,
		})
		s.FailedCount += int64(attempts)
		s.DeliveredCount--
	}
}

// holds makes each key held by its first message.
func holds(cause string) outcome {
	held := make(map[string]bool)
	return func(s *store.Settlement, m *postrider.Message) {
		p := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true}
		if !held[m.Key] {
			held[m.Key] = true
			p.Reason, p.Attempts, p.Cause = store.ParkRetry, 3, cause
			s.Held = append(s.Held, store.HeldKey{
				Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, Cause: cause, Attempts: 3, After: 40 * time.Second,
			})
		}
		s.Parked = append(s.Parked, p)
		s.DeliveredCount--
	}
}

// consumer makes a consumer that has dead letters.
func (s *Shop) consumer(suffix string) {
	const name = "orders-view"
	s.do(s.Enroll(s.ctx, name))
	tx, err := s.Begin(s.ctx)
	s.do(err)
	var dead []store.ParkRequest
	for i := range 12 {
		m := &postrider.Message{Type: "order.paid", Topic: "orders", Key: fmt.Sprintf("order/%d", i), CorrelationID: "fulfilment-4712", CausationID: s.Delivered, Payload: []byte(`{"number":1}`)}
		m.FillDefaults("shop", time.Now())
		s.Dead = m.ID
		dead = append(dead, store.ParkRequest{
			Dead: &store.DeadRequest{Reason: "handler failed"}, Message: m,
			Cause: fmt.Sprintf("duplicate key value violates unique constraint \"orders_%d\"%s\nshop.(*View).apply\n\tshop/view.go:41", 10000000+i, suffix),
		})
	}
	s.do(s.Park(s.ctx, tx, name, dead))
	s.do(s.Commit(s.ctx, tx))
	_, err = s.Heartbeat(s.ctx, name, owner(name), lease)
	s.do(err)
}

// sagas makes a stuck saga and some that run.
func (s *Shop) sagas(suffix string) {
	tx, err := s.Begin(s.ctx)
	s.do(err)
	var starts []store.SagaStart
	for i := range 4 {
		run := postrider.NewID()
		c := store.SagaCondition{Status: store.SagaRunning, Direction: store.SagaForward, Waiting: "charge", Obligations: 1}
		if i == 0 {
			c = store.SagaCondition{
				Status: store.SagaStuck, Direction: store.SagaBack, Waiting: "undo of charge" + suffix, Obligations: 2,
				Cause: "attempts exhausted", Detail: "connection refused (payments)" + suffix,
			}
		}
		starts = append(starts, store.SagaStart{
			SagaIdentity: store.SagaIdentity{
				Run: run, ID: fmt.Sprintf("fulfilment-%d", 4711+i), Engine: "shop", Saga: "order-fulfilment", Version: 2, Hash: "h",
				Kind: store.SagaOrchestrated, Key: fmt.Sprintf("order/%d", 42+i), CorrelationID: run, Tenant: "acme",
			},
			SagaCondition: c, SagaTimes: store.SagaTimes{Deadline: 6 * time.Minute},
			SagaBody: store.SagaBody{State: []byte("{}"), Data: []byte(`{"card":"` + Secret + `"}`)}, Token: "token",
			Labels: map[string]string{"customer": "42"},
			Transition: store.SagaTransition{Input: "start", Entries: []store.SagaEntry{
				{Name: "step.started", Step: "reserve"}, {Name: "step.done", Step: "reserve"}, {Name: "step.started", Step: "charge"},
			}},
		})
	}
	_, err = s.CreateSagas(s.ctx, tx, starts)
	s.do(err)
	s.do(s.Commit(s.ctx, tx))
	s.stuck(starts[0])
}

// stuck adds the history of the stuck saga.
func (s *Shop) stuck(first store.SagaStart) {
	tx, err := s.Begin(s.ctx)
	s.do(err)
	s.do(s.SaveSagas(s.ctx, tx, []store.SagaChange{{
		Run: first.Run, Rev: 4, SagaCondition: first.SagaCondition, SagaTimes: first.SagaTimes, SagaBody: first.SagaBody,
		Transitions: []store.SagaTransition{
			{Input: "reply", Step: "charge", Entries: []store.SagaEntry{{Name: "step.done", Step: "charge"}, {Name: "step.started", Step: "ship"}}},
			{Input: "reply", Step: "ship", Entries: []store.SagaEntry{{Name: "step.refused", Step: "ship", Text: "address not served"}, {Name: "undo.started", Step: "charge"}}},
			{Input: "timer", Step: "charge", Entries: []store.SagaEntry{{Name: "undo.exhausted", Step: "charge", Text: first.Detail}, {Name: "saga.stuck"}}},
		},
	}}))
	s.do(s.Commit(s.ctx, tx))
}
