package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

const (
	// moveEvery is how often the position moves: a crash makes the consumer read again what was processed since.
	moveEvery = 200 * time.Millisecond
	// lookEvery is how often an idle log is compared with what was read of it. storeEvery is how often an idle position is
	// stored, so that IDs can be removed and operators see that the log is read.
	lookEvery, storeEvery = 5 * time.Second, time.Minute
	// readLimit is the largest number of messages that are read at once.
	readLimit = 512
	// readAhead is how far a partition is read beyond its first message that is not settled, in messages for each that MaxInFlight
	// allows. It bounds what a slow handler makes the consumer remember, and read again after a crash.
	readAhead = 64
)

// errReplaced: the log is another one, or has lost its tail.
var errReplaced = errors.New("the log no longer has what was read of it")

// logRun reads a partition of a log while this process holds its lease.
type logRun[Tx any] struct {
	src   *logSource[Tx]
	part  postrider.LogPartition
	lease store.LeaseRef
	ctx   context.Context
	end   context.CancelFunc
	done  chan struct{}
	away  atomic.Bool // the broker did not let it read when it tried last

	mu      sync.Mutex
	session *logSession
	noticed bool // the log was another one when the last session ended

	// Only the goroutine that moves the position uses these.
	position   store.LogPosition
	moved      time.Time // when it was last stored
	reported   int64     // what the broker was told, and when
	reportedAt time.Time
	looked     time.Time     // when the log was last compared
	unknown    int64         // messages up to this offset may have been processed before
	openFor    time.Duration // for how long, when the session began
	began      time.Time     // of the session
	whole      bool          // it has read the partition from its beginning
}

// loop reads until the run ends. A failure is logged, and those that follow at once are not.
func (r *logRun[Tx]) loop(follow func() error) {
	defer close(r.done)
	for failures := 0; r.ctx.Err() == nil; {
		began := time.Now()
		err := follow()
		switch {
		case r.ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrLeaseLost):
			r.end()
			return
		case errors.Is(err, errReplaced):
			failures = 0
			attempt.Sleep(r.ctx, sourceRetryMin) // servers may not agree yet about which of them is authoritative
			continue
		case time.Since(began) > sourceRetryMax: // it has worked
			failures = 0
		}
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			r.away.Store(true)
		}
		if failures++; failures == 1 {
			r.logEnd(err)
		}
		attempt.Sleep(r.ctx, attempt.Backoff(sourceRetryMin, sourceRetryMax, failures))
	}
}

// logEnd says why a session ended. That another process had the lease meanwhile, because this one was paused or cut off, is no failure.
func (r *logRun[Tx]) logEnd(err error) {
	log, of := r.src.c.cfg.Logger, []any{"consumer", r.src.c.cfg.Name, "partition", r.part.Name}
	if errors.Is(err, store.ErrPositionMoved) {
		log.Info("another process has moved the consumer's position in a partition of its log; this one reads on from there", of...)
		return
	}
	log.Warn("consumer cannot read a partition of its log and keeps trying", append(of, "error", err)...)
}

// follow reads from the stored position until the session is lost.
func (r *logRun[Tx]) follow() error {
	session, err := r.open()
	if err != nil {
		return err
	}
	defer session.lose()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go func() { // a transaction may find out that the lease is lost
		select {
		case <-session.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	mover := make(chan error, 1)
	go func() {
		defer cancel()
		mover <- r.moveLoop(ctx, session)
	}()
	err = r.readAll(ctx, session)
	cancel()
	switch moved := <-mover; {
	case moved != nil:
		return moved
	case errors.Is(err, context.Canceled) && r.ctx.Err() == nil:
		return store.ErrLeaseLost
	}
	return err
}

// readAll reads until the session is lost. When a reader ends, the log is compared with what was read before the next one begins.
func (r *logRun[Tx]) readAll(ctx context.Context, session *logSession) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		if failures > 0 {
			attempt.Sleep(ctx, attempt.Backoff(sourceRetryMin, sourceRetryMax, failures))
		}
		read, err := r.readOn(ctx, session)
		switch {
		case errors.Is(err, errReplaced), ctx.Err() != nil:
			return err
		case read:
			failures = 0
		}
		if err != nil {
			r.away.Store(true)
			r.src.unreadable(r.part.Name, err)
		}
	}
	return ctx.Err()
}

// readOn reads on after what was read, until the reader ends. It reports whether anything was read. It compares the log with what
// was read once its reader is open: a log that is replaced later ends the reader.
func (r *logRun[Tx]) readOn(ctx context.Context, session *logSession) (read bool, err error) {
	_, head, _ := session.progress()
	reader, opened := r.src.log.ReadLog(ctx, session.part, head.Offset)
	if opened == nil {
		defer r.close(ctx, reader)
	}
	now, err := r.src.state(ctx, r.part.Name)
	if err == nil {
		err = r.compare(ctx, session, head, now)
	}
	if err = cmp.Or(err, opened); err != nil {
		return false, err
	}
	if session.skip(now) {
		return true, nil // the next reader begins after what was removed
	}
	r.away.Store(false) // a log without new messages has nothing to read
	return r.pass(ctx, session, reader)
}

// close ends a reader, even if ctx has ended, so that the broker removes what it has for it.
func (r *logRun[Tx]) close(ctx context.Context, reader postrider.LogReader) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = reader.Close(ctx) // it may have ended with its connection
}

// compare reports errReplaced if the log, whose state is now, does not have the message at a position that was read before, or if
// it may not have those before it.
func (r *logRun[Tx]) compare(ctx context.Context, session *logSession, at postrider.Position, now postrider.LogPartition) error {
	state := postrider.PositionKept
	if at.Incarnation != now.Incarnation || at.Offset > now.End {
		state = postrider.PositionReplaced
	} else if at.Mark != "" {
		var err error
		if state, err = verify(ctx, r.src.log, at); err != nil {
			return err
		}
	}
	if state == postrider.PositionReplaced {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.noticed = true
		return errReplaced
	}
	if now.Term != session.part.Term {
		return errReplaced // what was read before the last message may be
	}
	return nil
}

// hasNoticed reports once whether a session ended because the log was another one.
func (r *logRun[Tx]) hasNoticed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	noticed := r.noticed
	r.noticed = false
	return noticed
}

// pass passes on what a reader returns until it fails, and reports whether there was anything.
func (r *logRun[Tx]) pass(ctx context.Context, session *logSession, reader postrider.LogReader) (read bool, err error) {
	for {
		session.wait(ctx, readAhead*r.src.c.cfg.MaxInFlight)
		limit, bytes := r.src.share()
		quiet := time.AfterFunc(quietFor, func() { r.src.readable(r.part.Name) })
		deliveries, err := reader.Read(ctx, limit, bytes)
		quiet.Stop()
		if err != nil {
			return read, err
		}
		r.src.readable(r.part.Name)
		read = true
		if deliveries = session.admit(deliveries); len(deliveries) == 0 {
			continue
		}
		r.src.received.Store(true)
		select {
		case r.src.arrived <- deliveries:
		case <-ctx.Done():
			return read, ctx.Err()
		}
	}
}

// moveLoop moves the position until the session ends.
func (r *logRun[Tx]) moveLoop(ctx context.Context, session *logSession) error {
	for attempt.Sleep(ctx, moveEvery) {
		err := r.move(ctx, session)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errReplaced), errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrPositionMoved):
			session.lose()
			return err
		default:
			r.src.c.cfg.Logger.Debug("consumer cannot move its position and will try again", "consumer", r.src.c.cfg.Name,
				"partition", r.part.Name, "error", err)
		}
	}
	return nil
}

// move stores the position up to which everything is settled, after a comparison with the log.
func (r *logRun[Tx]) move(ctx context.Context, session *logSession) error {
	at, head, open := session.progress() // before the state of the log, which goes on
	if at.Offset == r.position.Offset && time.Since(r.looked) < lookEvery {
		return nil
	}
	now, err := r.src.state(ctx, r.part.Name)
	if err != nil {
		return err
	}
	if err := r.compare(ctx, session, head, now); err != nil {
		return err
	}
	r.looked = time.Now()
	gaps := session.removed(now.First)
	if now.Removed > max(head.Offset, r.position.MissingTo) {
		gaps = append(gaps, logGap{head.Offset + 1, now.Removed})
	}
	for _, g := range gaps {
		r.miss(&r.position, now, g)
	}
	p := r.position
	if at.Offset == p.Offset && len(gaps) == 0 && time.Since(r.moved) < storeEvery {
		return nil
	}
	if at.Offset > p.Offset {
		p.Offset, p.Anchors = at.Offset, addAnchor(p.Anchors, at)
	}
	if p.Offset < r.unknown {
		open = r.openFor + time.Since(r.began)
	}
	if err := r.store(ctx, p, now, open, nil); err != nil {
		return err
	}
	r.noteUnmatched(now)
	if time.Since(r.reportedAt) >= reportEvery {
		r.report(ctx)
	}
	return nil
}

// store stores a position under the lease, together with that in the whole log if it has just been divided.
func (r *logRun[Tx]) store(ctx context.Context, p store.LogPosition, now postrider.LogPartition, open time.Duration, divided *store.LogPosition) error {
	p.Number, p.End, p.Sparse, p.Open = p.Number+1, now.End, now.Sparse || now.Shared, open
	err := r.inTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := r.checkWhole(ctx, tx, p, divided); err != nil {
			return err
		}
		return r.src.c.store.MovePosition(ctx, tx, r.src.c.cfg.Name, p)
	})
	if err != nil {
		return fmt.Errorf("move the position in %s: %w", p.Partition, err)
	}
	r.position, r.moved = p, time.Now()
	return nil
}

// checkWhole stores the position in the whole log if it has just been divided. Otherwise it reports ErrPositionMoved if p is a position in a
// part that does not follow that in the whole any more: the log has been whole since, unnoticed here, and nobody would begin with p.
func (r *logRun[Tx]) checkWhole(ctx context.Context, tx Tx, p store.LogPosition, divided *store.LogPosition) error {
	switch {
	case divided != nil:
		return r.src.c.store.MovePosition(ctx, tx, r.src.c.cfg.Name, *divided)
	case p.Whole == "":
		return nil
	}
	whole, err := r.src.c.store.Position(ctx, tx, r.src.c.cfg.Name, p.Whole)
	if err == nil && (whole == nil || !p.Follows(whole)) {
		return store.ErrPositionMoved
	}
	return err
}

// inTx runs f in a transaction under the lease.
func (r *logRun[Tx]) inTx(ctx context.Context, f func(ctx context.Context, tx Tx) error) error {
	ctx, cancel := r.src.c.storeContext(ctx)
	defer cancel()
	tx, err := beginLimited(ctx, r.src.c.store)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := f(ctx, tx); err != nil {
		return errors.Join(err, r.src.c.rollback(tx))
	}
	return r.src.c.commitUnder(ctx, tx, r.lease)
}

// stop ends the run after its transactions under way, unless ctx ends first, and stores the last position.
func (r *logRun[Tx]) stop(ctx context.Context) {
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	if session != nil {
		session.retire(ctx)
	}
	r.end()
	select {
	case <-r.done:
	case <-ctx.Done():
		return
	}
	if session == nil {
		return
	}
	if at, _, _ := session.progress(); r.position.Partition != "" && at.Offset > r.position.Offset {
		_ = r.move(ctx, session) // otherwise what was processed since is read again
	}
	r.report(ctx)
	session.lose()
}
