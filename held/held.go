// Package held records decisions about held keys: keys that a relay or consumer has stopped because their first message
// failed.
//
//	d, err := held.Decide(ctx, store, store.Decision{Relay: "to-nats", Key: "order/42", Verb: store.VerbRetry, By: "ann"})
//
// A decision is recorded first, and then applied by the process that holds the lease of the key's partition, between two
// attempts: a message in flight is not moved until its call has returned. When no process holds the lease, Decide
// acquires it briefly and applies the decision itself, unless its role in the database may not. A decision is never applied twice.
package held

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// Database is the part of a store that Decide needs. All stores implement it.
type Database interface {
	store.Leases
	store.Records
}

// Errors of Decide.
var (
	// ErrRefused: the decision does not fit the state of the key. Nothing was changed; the error says why.
	ErrRefused = errors.New("the decision was refused")
	// ErrNotApplied: the decision is recorded, but not applied yet.
	ErrNotApplied = errors.New("the decision is recorded and not applied yet; the process that holds the key's partition applies " +
		"it when its present attempt has ended")
	// ErrSeveral: the decision does not say which of several parked messages with the same ID it is about.
	ErrSeveral = errors.New("several messages are parked")
)

const (
	pollMin = 10 * time.Millisecond
	pollMax = 500 * time.Millisecond
	// leaseFor is the TTL of a lease that Decide acquires when no process holds it.
	leaseFor = 15 * time.Second
)

// Decide records a decision, waits until it is applied, and returns it as applied. It generates the ID if there is none;
// a decision that is repeated with the same ID is applied once. Errors: store.ErrNotHeld; ErrRefused; ErrNotApplied when
// ctx ends first.
func Decide(ctx context.Context, db Database, d store.Decision) (store.Decision, error) {
	if d.ID == "" {
		d.ID = store.NewToken()
	}
	if err := New(db).RecordDecision(ctx, d); err != nil {
		return d, err
	}
	owner, mayLease := store.Owner{ID: "operator-" + d.ID, Host: d.By}, true
	for wait := pollMin; ; wait = min(2*wait, pollMax) {
		now, err := New(db).ShowDecision(ctx, d.ID)
		switch {
		case ctx.Err() != nil:
			return d, fmt.Errorf("%w: %w", ErrNotApplied, ctx.Err())
		case err != nil:
			return d, err
		case now.State == store.DecisionRefused:
			return now, fmt.Errorf("%w: %s", ErrRefused, now.Outcome)
		case now.State == store.DecisionApplied:
			return now, nil
		}
		if mayLease {
			applied, err := applyAlone(ctx, db, owner, now)
			mayLease = !errors.Is(err, store.ErrDenied) // the role of an operator may only decide
			switch {
			case applied:
				continue
			case err != nil && mayLease && ctx.Err() == nil:
				return d, err
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// applyAlone applies a decision if no process holds the lease of its partition.
func applyAlone(ctx context.Context, db Database, owner store.Owner, d store.Decision) (applied bool, err error) {
	leases, err := db.Acquire(ctx, d.Relay, owner, store.AcquireRequest{
		Claims: []store.LeaseClaim{{Partition: d.Partition, Token: store.NewToken()}}, TTL: leaseFor, MaxHeld: 1, // it looks at no other key
	})
	if err != nil {
		return false, err
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseFor)
		defer cancel()
		err = errors.Join(err, db.Leave(leaving, d.Relay, owner))
	}()
	if len(leases) == 0 {
		return false, nil
	}
	err = New(db).Apply(ctx, d.Relay, leases[0].Ref(), d.ID)
	if errors.Is(err, store.ErrLeaseLost) {
		return false, nil
	}
	return err == nil, err
}
