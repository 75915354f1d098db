package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Inbox tests a store against the contract of store.Inbox. The stores that the harness opens must implement it.
func Inbox[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	s := newSuite(f, h)
	s.checkStatements(t)
	for _, kind := range []struct {
		name  string
		tests []inboxTest[Tx]
	}{
		{"Claims", claimTests[Tx]()},
		{"Versions", versionTests[Tx]()},
		{"Positions", positionTests[Tx]()},
		{"Kinds", kindTests[Tx]()},
		{"Parking", parkingTests[Tx]()},
		{"Take", takeTests[Tx]()},
	} {
		g := group{name: kind.name}
		for _, test := range kind.tests {
			g.tests = append(g.tests, test.erase())
		}
		s.runGroup(t, g, false)
	}
}

// inboxTest is one test of the suite.
type inboxTest[Tx any] struct {
	name string
	run  func(e *inboxEnv[Tx])
	// late: the test needs several open transactions at a time.
	late bool
	// statements marks the tests that together execute every statement of a store.
	statements bool
}

func (it inboxTest[Tx]) erase() test {
	return test{name: it.name, late: it.late, statements: it.statements, run: func(e *env) {
		opened := e.database.(*erased[Tx]).Store
		store, ok := opened.(store.Inbox[Tx])
		if !ok {
			e.t.Fatalf("%T is no store.Inbox", opened)
		}
		it.run(&inboxEnv[Tx]{env: e, store: store, insert: opened.Insert})
	}}
}

// inboxEnv is one test's database, as an inbox uses it.
type inboxEnv[Tx any] struct {
	*env
	store  store.Inbox[Tx]
	insert func(ctx context.Context, tx Tx, msgs []*postrider.Message) error
}

func (e *inboxEnv[Tx]) begin() Tx {
	e.t.Helper()
	tx, err := e.store.Begin(e.ctx)
	e.must(err, "begin")
	return tx
}

func (e *inboxEnv[Tx]) commit(tx Tx) {
	e.t.Helper()
	e.must(e.store.Commit(e.ctx, tx), "commit")
}

func (e *inboxEnv[Tx]) rollback(tx Tx) {
	e.t.Helper()
	e.must(e.store.Rollback(e.ctx, tx), "roll back")
}

// inTx runs f in a transaction of its own.
func (e *inboxEnv[Tx]) inTx(f func(tx Tx)) {
	e.t.Helper()
	tx := e.begin()
	f(tx)
	e.commit(tx)
}

// claim claims messages, each given as an ID or as ID:key, and returns the result for each: fresh or known, and held.
func (e *inboxEnv[Tx]) claim(tx Tx, consumer string, ids ...string) []string {
	e.t.Helper()
	out, err := e.tryClaim(tx, consumer, ids...)
	e.must(err, "claim")
	return out
}

func (e *inboxEnv[Tx]) tryClaim(tx Tx, consumer string, ids ...string) ([]string, error) {
	var msgs []store.ClaimRequest
	for _, id := range ids {
		msgs = append(msgs, candidate(id))
	}
	answers, err := e.store.Claim(e.ctx, tx, consumer, msgs)
	if err == nil && len(answers) != len(ids) {
		err = fmt.Errorf("%d answers for %d messages", len(answers), len(ids))
	}
	var out []string
	for _, s := range answers {
		word := "known"
		if s.Fresh {
			word = "fresh"
		}
		if s.Held {
			word += " held"
		}
		out = append(out, word)
	}
	return out, err
}

func candidate(text string) store.ClaimRequest {
	for i := range text {
		if text[i] == ':' {
			return store.ClaimRequest{ID: text[:i], Key: text[i+1:]}
		}
	}
	return store.ClaimRequest{ID: text}
}

// effect writes a row that represents what processing a message changes in the database.
func (e *inboxEnv[Tx]) effect(tx Tx, id string) {
	e.t.Helper()
	m := e.message("")
	m.ID = id
	e.must(e.insert(e.ctx, tx, []*postrider.Message{m}), "insert")
}

// effects lists the committed effects.
func (e *inboxEnv[Tx]) effects() []string {
	e.t.Helper()
	e.made++
	return recordIDs(e.worker(fmt.Sprint("effects-", e.made), "a").drain())
}

// waits runs f, which must not return before release has run, and must succeed afterwards.
func (e *inboxEnv[Tx]) waits(what string, f func() error, release func()) {
	e.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	e.elapse(e.longer(blockedFor, blockedFor))
	select {
	case err := <-done:
		e.t.Fatalf("%s did not wait: %v", what, err)
	default:
	}
	release()
	e.must(<-done, what)
}

func claimTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "ClaimIsFreshOnce", run: claimIsFreshOnce[Tx]},
		{name: "ConsumersDoNotSeeEachOthersClaims", run: claimsOfConsumers[Tx]},
		{name: "ClaimAndEffectAreUndoneTogether", run: claimIsUndone[Tx]},
		{name: "SavepointUndoesItsPartOnly", run: savepointUndoes[Tx], statements: true},
		{name: "SavepointThatCannotBeReturnedToSaysSo", run: savepointIsGone[Tx]},
		{name: "OpenClaimIsWaitedFor", run: openClaimIsWaitedFor[Tx], late: true},
		{name: "ClaimsInOppositeOrdersComeToAnEnd", run: oppositeClaims[Tx], late: true},
		{name: "DeadlockIsAConflict", run: deadlockIsConflict[Tx], late: true},
		{name: "KeyHeldWithAClaimIsSeenAfterTheWait", run: heldSeenAfterWait[Tx], late: true, statements: true},
		{name: "OldClaimsAreForgottenInBatches", run: claimsAreRemoved[Tx], statements: true},
		{name: "TransactionsThatHaveEndedAreRefused", run: endedTransactions[Tx]},
	}
}

func claimIsFreshOnce[Tx any](e *inboxEnv[Tx]) {
	tx := e.begin()
	e.wantIDs("first", e.claim(tx, "c", "a", "b", "a"), []string{"fresh", "fresh", "known"})
	e.wantIDs("again in the transaction", e.claim(tx, "c", "b", "c"), []string{"known", "fresh"})
	e.commit(tx)
	e.inTx(func(tx Tx) {
		e.wantIDs("after the commit", e.claim(tx, "c", "c", "d", "a"), []string{"known", "fresh", "known"})
		e.wantIDs("none", e.claim(tx, "c"), nil)
	})
}

func claimsOfConsumers[Tx any](e *inboxEnv[Tx]) {
	e.inTx(func(tx Tx) {
		e.wantIDs("one", e.claim(tx, "one", "a"), []string{"fresh"})
		e.wantIDs("two", e.claim(tx, "two", "a"), []string{"fresh"})
	})
	e.elapse(10 * time.Millisecond)
	if n, err := e.store.RemoveClaims(e.ctx, "one", time.Millisecond, 10); n != 1 || err != nil {
		e.t.Errorf("removed %d of one consumer, %v; want 1", n, err)
	}
	e.inTx(func(tx Tx) {
		e.wantIDs("one, removed", e.claim(tx, "one", "a"), []string{"fresh"})
		e.wantIDs("two", e.claim(tx, "two", "a"), []string{"known"})
	})
}

func claimIsUndone[Tx any](e *inboxEnv[Tx]) {
	tx := e.begin()
	e.claim(tx, "c", "a")
	e.effect(tx, "a")
	e.rollback(tx)
	tx = e.begin()
	e.wantIDs("after the rollback", e.claim(tx, "c", "a"), []string{"fresh"})
	e.effect(tx, "a")
	e.commit(tx)
	e.rollback(tx) // no effect
	e.wantIDs("effects", e.effects(), []string{"a"})
}

var errUndo = errors.New("undo")

func savepointUndoes[Tx any](e *inboxEnv[Tx]) {
	tx := e.begin()
	e.claim(tx, "c", "before")
	e.effect(tx, "before")
	err := e.store.Savepoint(e.ctx, tx, func(ctx context.Context, tx Tx) error {
		e.claim(tx, "c", "undone")
		e.effect(tx, "undone")
		e.must(e.store.Park(ctx, tx, "c", []store.ParkRequest{{Message: e.message("k"), Reason: store.ParkRetry}}), "park")
		e.must(e.store.SetVersion(ctx, tx, "c", "undone", 3), "set version")
		e.must(e.store.Savepoint(ctx, tx, func(context.Context, Tx) error { e.effect(tx, "inner"); return nil }), "inner savepoint")
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		e.t.Fatalf("savepoint: %v, want the error of its function", err)
	}
	e.must(e.store.Savepoint(e.ctx, tx, func(context.Context, Tx) error {
		e.effect(tx, "kept")
		if err := e.store.Savepoint(e.ctx, tx, func(context.Context, Tx) error { e.effect(tx, "lost"); return errUndo }); err == nil {
			e.t.Error("inner savepoint swallowed the error")
		}
		return nil
	}), "savepoint")
	e.effect(tx, "after")
	e.wantIDs("claims", e.claim(tx, "c", "before", "undone:k"), []string{"known", "fresh"})
	e.commit(tx)
	e.wantSet("effects", e.effects(), []string{"after", "before", "kept"})
	e.inTx(func(tx Tx) {
		e.wantVersion(tx, "c", "undone", 0)
	})
}

func savepointIsGone[Tx any](e *inboxEnv[Tx]) {
	tx := e.begin()
	err := e.store.Savepoint(e.ctx, tx, func(context.Context, Tx) error {
		e.rollback(tx)
		return errUndo
	})
	if !errors.Is(err, errUndo) || !errors.Is(err, store.ErrUndone) {
		e.t.Errorf("savepoint: %v, want the error of its function and ErrUndone", err)
	}
}

func openClaimIsWaitedFor[Tx any](e *inboxEnv[Tx]) {
	for _, c := range []struct {
		id   string
		end  func(Tx)
		want string
	}{{"a", e.commit, "known"}, {"b", e.rollback, "fresh"}} {
		first, second := e.begin(), e.begin()
		e.claim(first, "c", c.id)
		var got []string
		e.waits("claim", func() (err error) {
			got, err = e.tryClaim(second, "c", c.id)
			return err
		}, func() { c.end(first) })
		e.wantIDs("claim of "+c.id, got, []string{c.want})
		e.commit(second)
	}
}

func oppositeClaims[Tx any](e *inboxEnv[Tx]) {
	const n = 10
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("m", i))
	}
	fresh := make(chan int, n)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			order := slices.Clone(ids)
			if i%2 == 0 {
				slices.Reverse(order)
			}
			tx, err := e.store.Begin(e.ctx)
			count := 0
			if err == nil {
				var got []string
				got, err = e.tryClaim(tx, "c", order...)
				for _, g := range got {
					if g == "fresh" {
						count++
					}
				}
				err = errors.Join(err, e.store.Commit(e.ctx, tx))
			}
			fresh <- count
			errs <- err
		}()
	}
	total := 0
	for range n {
		total += <-fresh
		e.must(<-errs, "claim")
	}
	if total != len(ids) {
		e.t.Errorf("%d messages were fresh, want each of %d once", total, len(ids))
	}
}

func deadlockIsConflict[Tx any](e *inboxEnv[Tx]) {
	txs, rows, errs := []Tx{e.begin(), e.begin()}, []string{"a", "b"}, make(chan error, 2)
	for i, tx := range txs {
		e.claim(tx, "c", rows[i])
	}
	for i, tx := range txs {
		go func() {
			_, err := e.tryClaim(tx, "c", rows[1-i])
			_ = e.store.Rollback(e.ctx, tx) // now the other one can go on
			errs <- err
		}()
	}
	for range txs {
		if err := <-errs; err != nil && !e.store.Conflicted(err) {
			e.t.Errorf("the error of a deadlock is no conflict: %v", err)
		} else if err != nil {
			return
		}
	}
	e.t.Error("a deadlock did not come to an end with an error")
}

func heldSeenAfterWait[Tx any](e *inboxEnv[Tx]) {
	first, second := e.begin(), e.begin()
	m := e.message("k")
	e.claim(first, "c", m.ID+":k")
	e.must(e.store.Park(e.ctx, first, "c", []store.ParkRequest{{Message: m, Reason: store.ParkRetry}}), "park")
	var got []string
	e.waits("claim", func() (err error) {
		got, err = e.tryClaim(second, "c", m.ID+":k", "next:k", "other:j", "keyless")
		return err
	}, func() { e.commit(first) })
	e.wantIDs("claims", got, []string{"known held", "fresh held", "fresh", "fresh"})
	e.commit(second)
}

func claimsAreRemoved[Tx any](e *inboxEnv[Tx]) {
	e.inTx(func(tx Tx) { e.claim(tx, "c", "a", "b", "c", "d", "e") })
	e.elapse(2 * shortTTL)
	elapsed := time.Now()
	e.inTx(func(tx Tx) { e.claim(tx, "c", "young") })
	for _, want := range []int{2, 2, 1, 0} {
		n, err := e.store.RemoveClaims(e.ctx, "c", time.Since(elapsed)+shortTTL, 2) // older than young can be, however slow the test is
		e.must(err, "remove")
		if n != want {
			e.t.Fatalf("removed %d, want %d", n, want)
		}
	}
	e.inTx(func(tx Tx) {
		e.wantIDs("claims", e.claim(tx, "c", "a", "e", "young"), []string{"fresh", "fresh", "known"})
	})
}

func endedTransactions[Tx any](e *inboxEnv[Tx]) {
	var none Tx
	ended := e.begin()
	e.commit(ended)
	m := e.message("k")
	for name, tx := range map[string]Tx{"zero": none, "ended": ended} {
		_, claim := e.tryClaim(tx, "c", "a")
		_, version := e.store.Version(e.ctx, tx, "c", "k")
		_, take := e.store.Take(e.ctx, tx, "c", m)
		for op, err := range map[string]error{
			"Claim": claim, "Version": version, "Take": take,
			"SetVersion": e.store.SetVersion(e.ctx, tx, "c", "k", 1),
			"Park":       e.store.Park(e.ctx, tx, "c", []store.ParkRequest{{Message: m, Reason: store.ParkRetry}}),
			"Savepoint":  e.store.Savepoint(e.ctx, tx, func(context.Context, Tx) error { return nil }),
		} {
			if !errors.Is(err, store.ErrNoTransaction) {
				e.t.Errorf("%s in %s transaction: %v, want ErrNoTransaction", op, name, err)
			}
		}
	}
}
