// Package memorybroker is an in-process broker for tests and examples. It keeps every accepted message in order, by
// topic, delivers messages to consumer groups as a queue or as a log (Broker.Subscriber), and fails on demand.
package memorybroker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

// ErrClosed is the cause of the postrider.Unavailable error that Publish returns after Close.
var ErrClosed = errors.New("memory broker is closed")

// Config configures a Broker. The zero value accepts messages of any size and number and does not deduplicate.
type Config struct {
	// MaxBatch is the largest number of messages in one Publish call; 0 means no limit.
	MaxBatch int
	// MaxMessageBytes is the largest size (postrider.Message.Size) that is accepted. Publish returns postrider.Dead for
	// larger messages. 0 means no limit.
	MaxMessageBytes int
	// DedupeWindow is how long a message with the ID of an accepted message is acknowledged but not stored. 0 stores
	// every duplicate.
	DedupeWindow time.Duration
}

// Broker keeps messages in memory. It is safe for concurrent use.
type Broker struct {
	cfg Config

	mu           sync.Mutex
	closed       bool
	topics       map[string][]*postrider.Message
	accepted     map[string]time.Time // by message ID; only with a DedupeWindow
	changed      chan struct{}        // closed and replaced when a message is accepted, closed permanently by Close
	faults       faults
	groups       map[string]*group
	incarnations map[string]int             // by topic: how often it was recreated
	numbers      map[*postrider.Message]int // by accepted message: a number that is never reused
	accepts      int
	sessions     int64                       // incremented when a log may have been replaced
	poison       map[*postrider.Message]bool // entries made by Poison, whose Payload is not a message
}

var _ postrider.Publisher = (*Broker)(nil)

// New returns an empty broker. Its error lists every value that is out of range.
func New(cfg Config) (*Broker, error) {
	var errs []error
	if cfg.MaxBatch < 0 {
		errs = append(errs, fmt.Errorf("memory broker: MaxBatch is %d; give 0 for no limit, or more", cfg.MaxBatch))
	}
	if cfg.MaxMessageBytes < 0 {
		errs = append(errs, fmt.Errorf("memory broker: MaxMessageBytes is %d; give 0 for no limit, or more", cfg.MaxMessageBytes))
	}
	if cfg.DedupeWindow < 0 {
		errs = append(errs, fmt.Errorf("memory broker: DedupeWindow is %s; give 0 for none, or more", cfg.DedupeWindow))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Broker{
		cfg:          cfg,
		topics:       make(map[string][]*postrider.Message),
		accepted:     make(map[string]time.Time),
		changed:      make(chan struct{}),
		groups:       make(map[string]*group),
		incarnations: make(map[string]int),
		numbers:      make(map[*postrider.Message]int),
		poison:       make(map[*postrider.Message]bool),
	}, nil
}

// Capabilities implements postrider.Publisher.
func (b *Broker) Capabilities() postrider.Capabilities {
	return postrider.Capabilities{
		Ordered:         true,
		MaxBatch:        b.cfg.MaxBatch,
		MaxMessageBytes: b.cfg.MaxMessageBytes,
		DedupeWindow:    b.cfg.DedupeWindow,
	}
}

// Publish implements postrider.Publisher. It stores a copy of each message under its topic.
func (b *Broker) Publish(ctx context.Context, msgs []*postrider.Message) []error {
	if err := ctx.Err(); err != nil {
		return all(len(msgs), fmt.Errorf("publish to memory: %w", err))
	}
	errs, held := b.accept(msgs)
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return all(len(msgs), fmt.Errorf("publish to memory: wait for acknowledgement: %w", ctx.Err()))
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// accept stores the messages that it can accept. Publish must wait for the returned channel if it is not nil.
func (b *Broker) accept(msgs []*postrider.Message) ([]error, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.cfg.MaxBatch; n > 0 && len(msgs) > n {
		return all(len(msgs), fmt.Errorf("publish to memory: %d messages in one call; MaxBatch is %d", len(msgs), n)), nil
	}
	errs := make([]error, len(msgs))
	failed := make(map[string]int) // by key: index of the first failed message
	for i, m := range msgs {
		head, follows := failed[m.Key]
		if follows && m.Key != "" {
			errs[i] = postrider.PredecessorFailed(msgs[head], errs[head])
			continue
		}
		if errs[i] = b.acceptOne(m); errs[i] != nil {
			failed[m.Key] = i
		}
	}
	return errs, b.faults.hold
}

func (b *Broker) acceptOne(m *postrider.Message) error {
	if err := b.unavailable(); err != nil {
		return err
	}
	if limit := b.cfg.MaxMessageBytes; limit > 0 && m.Size() > limit {
		return postrider.Dead("too large for the broker", fmt.Errorf("%d bytes; the broker takes %d", m.Size(), limit))
	}
	before, after := b.faults.next(m)
	if before != nil {
		return before
	}
	b.keep(m)
	return after
}

// keep stores a copy unless the message is a duplicate.
func (b *Broker) keep(m *postrider.Message) {
	if window := b.cfg.DedupeWindow; window > 0 {
		now := time.Now()
		if at, ok := b.accepted[m.PublishID()]; ok && now.Sub(at) < window {
			return
		}
		b.accepted[m.PublishID()] = now
	}
	b.append(clone(m))
}

// append adds a message to the end of its topic.
func (b *Broker) append(m *postrider.Message) {
	b.accepts++
	b.numbers[m] = b.accepts
	b.topics[m.Topic] = append(b.topics[m.Topic], m)
	b.tell()
}

// Close makes the broker unavailable permanently and ends every Subscribe. Accepted messages can still be read.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.changed)
	}
	return nil
}

// Topics returns the topics that have messages, sorted.
func (b *Broker) Topics() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.topics))
}

// Messages returns copies of the messages of a topic, in the order in which they were accepted.
func (b *Broker) Messages(topic string) []*postrider.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	msgs := make([]*postrider.Message, len(b.topics[topic]))
	for i, m := range b.topics[topic] {
		msgs[i] = clone(m)
	}
	return msgs
}

// Subscribe yields copies of the messages of a topic, starting with the oldest, and waits for more until ctx ends or the
// broker is closed.
func (b *Broker) Subscribe(ctx context.Context, topic string) iter.Seq[*postrider.Message] {
	return func(yield func(*postrider.Message) bool) {
		for next := 0; ; {
			b.mu.Lock()
			msgs, changed, closed := b.topics[topic], b.changed, b.closed
			b.mu.Unlock()
			for ; next < len(msgs); next++ {
				if ctx.Err() != nil || !yield(clone(msgs[next])) {
					return
				}
			}
			if closed {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

func clone(m *postrider.Message) *postrider.Message {
	c := *m
	c.Headers = maps.Clone(m.Headers)
	c.Payload = slices.Clone(m.Payload)
	return &c
}

func all(n int, err error) []error {
	return slices.Repeat([]error{err}, n)
}
