package outbox

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/store"
)

// Outbox publishes messages in transactions of type Tx, e.g. pgx.Tx or *sql.Tx. It is safe for concurrent use.
type Outbox[Tx any] struct {
	store   store.Outbox[Tx]
	config  Config
	limits  postrider.Limits
	watched protect.Observer

	hasBefore, hasAfter, hasAfterCommit bool // whether any hook has these functions
}

// New returns an outbox that writes to store. The error lists every error in the Config.
func New[Tx any](store store.Outbox[Tx], c Config) (*Outbox[Tx], error) {
	if err := c.validate(isNil(store)); err != nil {
		return nil, err
	}
	c.Hooks = slices.Clone(c.Hooks)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	o := &Outbox[Tx]{store: store, config: c, limits: postrider.Limits{MaxPayload: c.MaxPayload}}
	for _, h := range c.Hooks {
		o.hasBefore = o.hasBefore || h.BeforePublish != nil
		o.hasAfterCommit = o.hasAfterCommit || h.AfterCommit != nil
		o.hasAfter = o.hasAfter || h.AfterCommit != nil || h.AfterRollback != nil
	}
	return o, nil
}

// Publish writes messages in the transaction tx: they are delivered if, and only if, it commits. It returns their IDs in
// the same order, with "" for a message that a BeforePublish hook suppressed. It writes all messages or, on an error,
// none; a batch of up to 1,000 messages or 4 MiB is one round trip.
//
// Publish does not change the messages: defaults, and what hooks and the Propagator add, go into copies. Payloads are not
// copied.
//
// In a transaction that InTx began, pass the context that InTx gave. In any other, use Track, or call Wake after the commit,
// which Publish cannot see, so that a relay in this process delivers at once. Without Wake, relays find the messages by polling
// (by default every 25 ms to 1 s).
//
// Errors: store.ErrNoTransaction for a nil or finished transaction; *postrider.ValidationError, with every problem of every
// message; what a BeforePublish hook returned; the store's. After an error of the store, roll the transaction back.
func (o *Outbox[Tx]) Publish(ctx context.Context, tx Tx, msgs ...*postrider.Message) ([]string, error) {
	if isNil(tx) {
		return nil, store.ErrNoTransaction
	}
	ctx, published := o.publishing(ctx, msgs)
	p := o.preparation(ctx)
	ready := p.add(ctx, msgs)
	err := p.err()
	if err == nil {
		err = o.insert(ctx, tx, ready)
	}
	published(ready, err)
	if err != nil {
		return nil, err
	}
	o.track(ctx, tx, ready, true)
	return p.ids, nil
}

// Check returns the *postrider.ValidationError for which Publish would refuse a message, before any hook changes it, or nil.
func (o *Outbox[Tx]) Check(m *postrider.Message) error {
	if m != nil {
		c := *m
		c.FillDefaults(o.config.Source, time.Now())
		m = &c
	}
	if faults := o.faults(m); len(faults) > 0 {
		return &postrider.ValidationError{Faults: faults, Batch: 1}
	}
	return nil
}

// Published returns the messages that the transaction tx has published and not undone, in order, as they are in the database: with
// defaults, and without those that a hook suppressed. It reads them from the database, so those that another part of the program
// published are among them, and on PostgreSQL those published in SQL. Errors: store.ErrNoTransaction; the store's.
func (o *Outbox[Tx]) Published(ctx context.Context, tx Tx) ([]*postrider.Message, error) {
	if isNil(tx) {
		return nil, store.ErrNoTransaction
	}
	msgs, err := o.store.Published(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("read what a transaction has published: %w", err)
	}
	return msgs, nil
}

// Limits of a PublishSeq chunk: those of one round trip.
const (
	chunkMessages = 1_000
	chunkBytes    = 4 << 20
)

// PublishSeq writes a stream of messages in the transaction tx, in chunks of 1,000 messages or 4 MiB, whichever comes
// first, and keeps nothing of a chunk that is written. In InTx and with Track, it keeps the ID of every message and, with After
// hooks, the message without its payload, so there the transaction's memory grows with the number of messages. It returns how many
// it wrote. The stream must not reuse a message that it has yielded, since it is written later, with its chunk.
//
// PublishSeq stops at the first error, including one that seq yields. Earlier chunks are then in the transaction: roll it
// back for all or nothing. Everything else is as in Publish, except that After hooks get the messages without their
// payloads.
func (o *Outbox[Tx]) PublishSeq(ctx context.Context, tx Tx, seq iter.Seq2[*postrider.Message, error]) (int, error) {
	if isNil(tx) {
		return 0, store.ErrNoTransaction
	}
	p := o.preparation(ctx)
	p.discardIDs = true
	written, bytes := 0, 0
	var chunk []*postrider.Message
	for m, err := range seq {
		if err != nil {
			return written, fmt.Errorf("read message %d to publish: %w", p.seen+len(chunk), err)
		}
		chunk = append(chunk, m)
		if m != nil { // check reports nil messages when the chunk is published
			bytes += m.Size()
		}
		if len(chunk) < chunkMessages && bytes < chunkBytes {
			continue
		}
		n, err := o.publishChunk(ctx, tx, &p, chunk)
		written += n
		if err != nil {
			return written, err
		}
		chunk, bytes = chunk[:0], 0
	}
	if len(chunk) == 0 {
		return written, nil
	}
	n, err := o.publishChunk(ctx, tx, &p, chunk)
	return written + n, err
}

func (o *Outbox[Tx]) publishChunk(ctx context.Context, tx Tx, p *preparation[Tx], chunk []*postrider.Message) (int, error) {
	ctx, published := o.publishing(ctx, chunk)
	ready := p.add(ctx, chunk)
	err := p.err()
	if err == nil {
		err = o.insert(ctx, tx, ready)
	}
	published(ready, err)
	if err != nil {
		return 0, err
	}
	o.track(ctx, tx, ready, false)
	return len(ready), nil
}

// Wake tells relays that messages were committed: those that take one of the topics, or all relays if no topic is given. Call it after
// committing your own transaction; InTx calls it for you. It never blocks.
func (o *Outbox[Tx]) Wake(topics ...string) { o.store.Wake(topics...) }

func (o *Outbox[Tx]) insert(ctx context.Context, tx Tx, msgs []*postrider.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := o.store.Insert(ctx, tx, msgs); err != nil {
		return fmt.Errorf("publish %d messages: %w", len(msgs), err)
	}
	return nil
}

// isNil also detects a nil pointer inside an interface, such as a *sql.Tx that was never begun.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return r.IsNil()
	default:
		return false
	}
}
