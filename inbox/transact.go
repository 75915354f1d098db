package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	signals "github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/store"
)

// result is the result of a transaction for a batch.
type result struct {
	// err is why it was not committed, or may not have been. failed, if not nil, is the part of err that is attributed to
	// the batch's only message: its handler's error, or that of the commit of its changes.
	err, failed error
	// ofDatabase: failed seems to be the fault of the database.
	ofDatabase bool
	ends       map[*item]end
	// cut, if positive, is how many messages there was time for; nothing was committed.
	cut int
	// onlyParked: messages were parked or dead-lettered, and none was handled.
	onlyParked bool
}

// transaction is a running transaction.
type transaction[Tx any] struct {
	*Consumer[Tx]
	tx      Tx
	ends    map[*item]end
	failed  []store.ParkRequest // messages to park or dead-letter, in the order of receipt
	held    map[string]bool     // keys that are held, or will be
	how     sharing
	timer   *storeTimer
	begun   time.Time
	done    int   // messages processed so far
	handled int   // those whose handler was called
	failure error // the error of the handler, if it was alone in the transaction
}

// sharing says how the messages of a transaction share it.
type sharing int

const (
	alone    sharing = iota // there is only one
	together                // if one fails, the transaction is run again, with savepoints
	separate                // each has a savepoint, so that its failure undoes only its own changes
)

// errOneFailed: a message failed in a transaction without savepoints.
var errOneFailed = errors.New("a message of the batch failed")

// oneFailed says why.
func oneFailed(err error) error { return fmt.Errorf("%w: %w", errOneFailed, err) }

// errNoTime: the transaction took so long that it starts no further message of its batch.
var errNoTime = errors.New("the time of a transaction is over")

// separateFor is how many batches use savepoints after a batch without them had to be run again.
const separateFor = 16

// transact runs one transaction for a batch. Savepoints cost two round trips per message, so a batch first runs without
// them. They do not help against a deadlock: the transaction would keep the locks that others wait for.
func (c *Consumer[Tx]) transact(ctx context.Context, batch []*item) result {
	if len(batch) == 1 {
		return c.transactOnce(ctx, batch, alone)
	}
	if c.separate.Load() <= 0 {
		res := c.transactOnce(ctx, batch, together)
		if !errors.Is(res.err, errOneFailed) || c.store.Conflicted(res.err) {
			return res
		}
		c.separate.Store(separateFor)
	}
	c.separate.Add(-1)
	return c.transactOnce(ctx, batch, separate)
}

// transactOnce runs a transaction: claim; handlers; parking; commit. If any step fails, nothing has happened, except when the
// response to the commit was lost: then the next claim finds the messages claimed.
func (c *Consumer[Tx]) transactOnce(ctx context.Context, batch []*item, how sharing) (res result) {
	if len(batch) == 1 && c.cfg.Context != nil {
		own, err := c.contextOf(ctx, batch[0])
		if err != nil {
			return result{err: err, failed: err}
		}
		ctx = own
	}
	var published signals.After
	timer, ctx := c.timed(published.Within(ctx))
	defer timer.end()
	t := &transaction[Tx]{Consumer: c, how: how, timer: timer, ends: make(map[*item]end, len(batch)), held: make(map[string]bool)}
	fresh, err := t.begin(ctx, batch)
	if err != nil {
		return result{err: errors.Join(err, timer.cause())}
	}
	t.begun = time.Now()
	defer func() {
		if res.err != nil {
			undone := c.rollback(t.tx)
			res.ofDatabase = c.ofDatabase(res.failed, undone)
			res.err = errors.Join(res.err, timer.cause(), undone)
		}
	}()
	timer.pause()
	err = t.deliverAll(ctx, fresh)
	timer.resume()
	if t.handled > 0 {
		c.size.slow.Store(time.Since(t.begun) > time.Duration(t.handled)*slowHandler)
	}
	if err != nil {
		res = result{err: err, failed: t.failure}
		if errors.Is(err, errNoTime) {
			res.cut = slices.Index(batch, fresh[t.done])
		}
		return res
	}
	if err := t.writeFailed(ctx); err != nil {
		return result{err: err}
	}
	if err := stillOurs(ctx, batch); err != nil { // lost and the handler did not notice
		return result{err: err}
	}
	if err := c.commit(ctx, t.tx, batch[0].session); err != nil {
		res = result{err: &storeError{fmt.Errorf("commit: %w", err)}}
		if t.handled > 0 && how == alone && (ctx.Err() == nil || timer.cause() != nil) { // of several messages, each is tried alone to find the cause
			res.failed = res.err
		}
		return res
	}
	published.Wake()
	if len(t.failed) > 0 { // what was parked may be due
		c.store.Wake()
	}
	return result{ends: t.ends, onlyParked: t.handled == 0 && len(t.failed) > 0}
}

// commit commits a transaction. If its messages were read from a log, it commits only under the lease of the log.
func (c *Consumer[Tx]) commit(ctx context.Context, tx Tx, session *logSession) error {
	if session == nil {
		return c.store.Commit(ctx, tx)
	}
	err := c.commitUnder(ctx, tx, session.lease)
	if errors.Is(err, store.ErrLeaseLost) {
		session.lose()
		return errors.Join(errLost, err)
	}
	return err
}

// contextOf returns the context of a message's own transaction.
func (c *Consumer[Tx]) contextOf(ctx context.Context, it *item) (own context.Context, err error) {
	err = safely(func() (err error) {
		own, err = c.messageContext(ctx, restored(it.msg))
		return err
	})
	if err != nil && it.fate != nil { // the message is stored, in any case
		return ctx, nil
	}
	return own, err
}

// rollbackTimeout limits a rollback, which continues when the consumer stops.
const rollbackTimeout = 10 * time.Second

func (c *Consumer[Tx]) rollback(tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.calls), rollbackTimeout)
	defer cancel()
	return c.store.Rollback(ctx, tx)
}

// errLost: this process has lost the right to work on a message.
var errLost = errors.New("the right to work on a message was lost")

// stillOurs says why a transaction must not be committed.
func stillOurs(ctx context.Context, batch []*item) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, it := range batch {
		if it.lost() {
			return errLost
		}
	}
	return nil
}

// begin begins the transaction, claims the messages and returns those that are new.
func (t *transaction[Tx]) begin(ctx context.Context, batch []*item) ([]*item, error) {
	msgs := make([]*postrider.Message, len(batch))
	for i, it := range batch {
		msgs[i] = it.msg
	}
	tx, results, err := t.batcher.BeginClaim(ctx, t.cfg.Name, claimsOf(msgs, t.handlesAgain))
	if err != nil {
		return nil, err
	}
	t.tx = tx
	fresh := make([]*item, 0, len(batch))
	for i, it := range batch {
		if !results[i].Fresh {
			t.ends[it] = duplicate
			continue
		}
		fresh = append(fresh, it)
		if results[i].Held {
			t.held[it.msg.Key] = true
		}
	}
	return fresh, nil
}

// writeFailed parks and dead-letters messages, in the order of receipt: so they are handled in it, whatever operators do in between.
func (t *transaction[Tx]) writeFailed(ctx context.Context) error {
	if len(t.failed) == 0 {
		return nil
	}
	if err := t.store.Park(ctx, t.tx, t.cfg.Name, t.failed); err != nil {
		return fmt.Errorf("park or dead-letter: %w", err)
	}
	return nil
}
