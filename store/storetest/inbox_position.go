package storetest

import (
	"errors"
	"reflect"
	"time"

	"github.com/postrider/postrider/store"
)

func positionTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "PositionMoves", run: positionMoves[Tx], statements: true},
		{name: "PositionMovesOnlyFromItsPredecessor", run: positionFollows[Tx]},
		{name: "PositionMovesUnderTheLeaseOnly", run: positionFenced[Tx], statements: true},
		{name: "PositionOfAnotherTransactionIsWaitedFor", run: positionWaits[Tx], late: true},
	}
}

// position reads a position.
func (e *inboxEnv[Tx]) position(tx Tx, consumer, partition string) *store.LogPosition {
	e.t.Helper()
	p, err := e.store.Position(e.ctx, tx, consumer, partition)
	e.must(err, "position")
	return p
}

func (e *inboxEnv[Tx]) move(tx Tx, consumer string, p store.LogPosition) {
	e.t.Helper()
	e.must(e.store.MovePosition(e.ctx, tx, consumer, p), "move the position")
}

// wantPosition checks a position, apart from its age.
func (e *inboxEnv[Tx]) wantPosition(what string, got *store.LogPosition, want store.LogPosition) {
	e.t.Helper()
	if got == nil {
		e.t.Fatalf("%s: there is no position", what)
	}
	if got.Moved < 0 || got.Moved > time.Hour {
		e.t.Errorf("%s: it moved %s ago", what, got.Moved)
	}
	same := *got
	same.Moved = 0
	if !reflect.DeepEqual(same, want) {
		e.t.Errorf("%s: position %+v, want %+v", what, same, want)
	}
}

func positionMoves[Tx any](e *inboxEnv[Tx]) {
	first := store.LogPosition{
		Partition: "orders/0", Number: 1, Incarnation: "e", Offset: -1, End: 1 << 62, Open: 3 * time.Second, Replaced: 2,
		Anchors: []store.LogAnchor{{Offset: 0, Mark: "\"a\\"}, {Offset: 1 << 61, Mark: "b"}}, Missing: 7, MissingFrom: 1, MissingTo: 7,
	}
	other := store.LogPosition{Partition: "c:orders/0", Number: 1, Incarnation: "f", Offset: 5}
	e.inTx(func(tx Tx) {
		if p := e.position(tx, "c", "orders/0"); p != nil {
			e.t.Errorf("at first: position %+v", p)
		}
		e.move(tx, "c", first)
		e.move(tx, "c", other)
		e.move(tx, "c:", store.LogPosition{Partition: "orders/0", Number: 1, Offset: 9}) // another consumer
	})
	tx := e.begin()
	second := first
	second.Number, second.Offset, second.Anchors = 2, 41, nil
	e.move(tx, "c", second)
	e.rollback(tx)
	e.inTx(func(tx Tx) { e.wantPosition("after a rollback", e.position(tx, "c", "orders/0"), first) })
	e.inTx(func(tx Tx) { e.move(tx, "c", second) })
	e.inTx(func(tx Tx) { e.wantPosition("moved", e.position(tx, "c", "orders/0"), second) })
	all, err := e.store.LogPositions(e.ctx, "c")
	e.must(err, "positions")
	if len(all) != 2 {
		e.t.Fatalf("positions %+v, want two", all)
	}
	e.wantPosition("first of all", &all[0], other)
	e.wantPosition("second of all", &all[1], second)
	if none, err := e.store.LogPositions(e.ctx, "d"); err != nil || len(none) != 0 {
		e.t.Errorf("positions of an unknown consumer: %+v, %v", none, err)
	}
	e.must(e.store.Enroll(e.ctx, "c"), "enroll")
	reader, ok := any(e.store).(store.StatusReader)
	if !ok {
		return
	}
	status, err := reader.Consumers(e.ctx)
	e.must(err, "status")
	if len(status) != 1 || len(status[0].Positions) != 2 {
		e.t.Errorf("status: %+v, want both positions", status)
	}
}

func positionFollows[Tx any](e *inboxEnv[Tx]) {
	p := store.LogPosition{Partition: "p", Incarnation: "e"}
	try := func(number int64) error {
		tx := e.begin()
		p.Number, p.Offset = number, number
		err := e.store.MovePosition(e.ctx, tx, "c", p)
		if err != nil {
			e.rollback(tx)
			return err
		}
		e.commit(tx)
		return nil
	}
	for _, step := range []struct {
		number int64
		ok     bool
	}{{2, false}, {1, true}, {1, false}, {3, false}, {2, true}, {2, false}, {1, false}, {4, false}, {3, true}} {
		if err := try(step.number); step.ok != (err == nil) || err != nil && !errors.Is(err, store.ErrPositionMoved) {
			e.t.Errorf("move number %d: %v, want allowed %v", step.number, err, step.ok)
		}
	}
	e.inTx(func(tx Tx) {
		e.wantPosition("at the end", e.position(tx, "c", "p"), store.LogPosition{Partition: "p", Incarnation: "e", Number: 3, Offset: 3})
	})
}

// positionFenced: a process that has lost its lease moves no position.
func positionFenced[Tx any](e *inboxEnv[Tx]) {
	if _, ok := e.store.(store.TxSettler[Tx]); !ok {
		return // its consumers cannot read a log
	}
	e.must(e.store.Enroll(e.ctx, "c"), "enroll")
	acquire := func(owner string) store.Lease {
		leases, err := e.store.Acquire(e.ctx, "c", store.Owner{ID: owner, Host: "host"}, store.AcquireRequest{
			Kind: store.KindConsumer, TTL: time.Hour, Claims: []store.LeaseClaim{{Partition: 1, Token: store.NewToken()}},
		})
		e.must(err, "acquire")
		if len(leases) != 1 {
			e.t.Fatalf("acquired %+v", leases)
		}
		return leases[0]
	}
	move := func(l store.Lease, number int64) error {
		tx := e.begin()
		e.move(tx, "c", store.LogPosition{Partition: "p", Number: number, Offset: number})
		_, err := e.txStore().CommitSettled(e.ctx, tx, "c", store.Settlement{Partition: l.Partition, Token: l.Token})
		return err
	}
	old := acquire("a")
	e.must(move(old, 1), "move under the lease")
	e.must(e.store.Release(e.ctx, "c", []store.LeaseRef{old.Ref()}), "release")
	if err := move(old, 2); !errors.Is(err, store.ErrLeaseLost) {
		e.t.Errorf("move without a lease: %v, want ErrLeaseLost", err)
	}
	fresh := acquire("b")
	if err := move(old, 2); !errors.Is(err, store.ErrLeaseLost) {
		e.t.Errorf("move under the lease before: %v, want ErrLeaseLost", err)
	}
	e.must(move(fresh, 2), "move under the new lease")
}

func positionWaits[Tx any](e *inboxEnv[Tx]) {
	at := func(number int64) store.LogPosition {
		return store.LogPosition{Partition: "p", Number: number, Offset: number}
	}
	e.inTx(func(tx Tx) { e.move(tx, "c", at(1)) })
	first, second := e.begin(), e.begin()
	e.move(first, "c", at(2))
	e.move(second, "d", at(1)) // another consumer has its own position
	var err error
	e.waits("position", func() error {
		err = e.store.MovePosition(e.ctx, second, "c", at(2))
		return nil
	}, func() { e.commit(first) })
	if !errors.Is(err, store.ErrPositionMoved) {
		e.t.Errorf("move after the other: %v, want ErrPositionMoved", err)
	}
	e.rollback(second)
}
