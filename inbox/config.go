package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// ConsumerConfig says what a consumer does and how. The zero value of each field means its default.
type ConsumerConfig struct {
	// Name identifies the consumer and what it has consumed, e.g. "order-view": 1 to 64 bytes. Required. Processes that run
	// a consumer of the same name on the same database share its work, and no relay of that database has this name.
	Name string

	// Dedup says how the consumer remembers what it has consumed. Default: ByID.
	Dedup Dedup
	// KeepIDs is how long the ID of a consumed message is remembered. It must not be shorter than the time for which the
	// source may deliver a message again (its redelivery window) and you may replay it (ReplayWindow) together; the consumer
	// warns when it starts if it is. Default: 7 days. By watermark it has no meaning.
	KeepIDs time.Duration
	// ReplayWindow is how far back you mean to have messages published again with their old IDs. Default: 24 h.
	ReplayWindow time.Duration
	// RequireOrder refuses a source that does not keep the order of a key. Default: such a source is taken, and the log
	// says that there is no order.
	RequireOrder bool

	// Concurrency is the number of transactions under way at once for messages as they come, RetryConcurrency that for
	// messages that were put aside. Each takes a connection: allow the database's pool as many and four more, or they wait for
	// each other. On PostgreSQL one connection of the pool stays free of them. Defaults: 16 and 4.
	Concurrency, RetryConcurrency int
	// Batch is the largest number of messages in one transaction. If one of several fails, the transaction is run again with
	// a savepoint for each, so that it costs only itself: handlers may run twice, which counts as one attempt. Transactions are
	// also kept to a third of LeaseTTL: they begin with few messages and grow as long as they are quick, and one that takes longer
	// is undone and run again with as many messages as there was time for. Default: 1 by ID, 100 by watermark.
	Batch int
	// MaxInFlight and MaxInFlightBytes bound the messages that the consumer holds in memory; the last reading may go beyond
	// the bytes. Defaults: 1,024 and 16 MiB.
	MaxInFlight, MaxInFlightBytes int

	// MaxAttempts is the number of attempts before a message is dead. Default: 10.
	MaxAttempts int
	// LocalAttempts and LocalFor bound the attempts that are made while the broker waits for the message: that many, and no
	// further one that would begin later than this after the first. Then the message is put aside, and its key goes on from
	// there. They apply to transactions of one message by ID; otherwise a message that fails is put aside at once. Defaults:
	// 3 and 2 s.
	LocalAttempts int
	LocalFor      time.Duration
	// BackoffBase and BackoffMax bound the wait before attempt n+1, which is drawn at random between 0 and
	// min(BackoffMax, BackoffBase·2^(n−1)) ("full jitter"). Defaults: 200 ms and 60 s.
	BackoffBase, BackoffMax time.Duration
	// UnavailableWait is how long a message is put aside, without counting an attempt, when its handler reports that what it
	// needs is unavailable (postrider.Unavailable), or when versions before it are missing. Default: 5 s.
	UnavailableWait time.Duration
	// AttemptTimeout ends the context of an attempt. If the database ends transactions that wait for a statement, it must lie
	// below the time after which it does so, or NewConsumer fails. Default: two thirds of that time (10 s on PostgreSQL);
	// otherwise none.
	AttemptTimeout time.Duration
	// OnDead says what becomes of a key whose head died. Default: relay.ContinueKey.
	OnDead relay.OnDead
	// Unhandled says what becomes of a message whose type has no handler. Default: HoldUnhandled.
	Unhandled Unhandled
	// UnhandledFor is how long such a message is held before it is dead. Default: for ever.
	UnhandledFor time.Duration
	// Versions guards keys by the AggregateVersion of their messages. Default: none.
	Versions *VersionGuard

	// Context returns the context for a message's transaction and handler, e.g. with its tenant as your database layer
	// looks for it. Default: the context as it is; postrider.MessageFromContext finds the message in it.
	Context func(ctx context.Context, m *postrider.Message) context.Context
	// Interceptors wrap every call of a handler, inside its transaction; the first is outermost.
	Interceptors []relay.Interceptor
	// Propagator restores the trace context of a message in the context of its handler. Default: none.
	Propagator postrider.Propagator

	// LeaseTTL is the life of the leases under which processes share what was put aside. Default: 15 s.
	LeaseTTL time.Duration
	// StopTimeout is how long Run waits for transactions under way when its context ends, before it cancels them. Default:
	// 30 s.
	StopTimeout time.Duration
	// Logger takes what operators should know. Default: slog.Default().
	Logger *slog.Logger
	// Version is shown to operators beside the process. Default: none.
	Version string
}

// Dedup is a way to remember what was consumed.
type Dedup int

// The ways to remember.
const (
	// ByID keeps the ID of every message for KeepIDs. It works with every source.
	ByID Dedup = iota
	// ByPosition keeps one row per partition of the source: everything up to this offset is consumed. The source must keep
	// order and have positions. The messages of a partition run one transaction after another.
	ByPosition
)

// Unhandled says what becomes of messages without a handler.
type Unhandled int

// The choices for messages without a handler.
const (
	// HoldUnhandled puts them aside until a process has a handler, so that an old process in a rolling deployment loses
	// nothing that is for the new one.
	HoldUnhandled Unhandled = iota
	// SkipUnhandled passes over them, for a source that carries more than this consumer wants.
	SkipUnhandled
)

// VersionGuard applies the messages of a key in the order of their AggregateVersion, each version once: a message whose
// version is not above the one applied last is skipped, also if it comes under another ID; one whose version is not the
// next must wait or fail. Messages without a key or a version are not guarded. The consumer keeps one row per key.
type VersionGuard struct {
	// FromOne expects every key to begin with version 1. Set it when the source keeps no order and has everything from the
	// beginning. Default: the first message of a key may have any version, as for a consumer that joins late; what comes
	// later with a lower one is skipped.
	FromOne bool
	// WaitFor is how long a message may wait for the versions that are missing before it. Its key is held meanwhile; a
	// missing version goes ahead when it comes. Then the message is dead. Default: 1 minute; negative: a gap is a failed
	// attempt like any other.
	WaitFor time.Duration
}

// complete returns a copy with every default filled in, or every fault that it found.
func (c ConsumerConfig) complete(caps postrider.SubscriberCapabilities) (ConsumerConfig, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Name == "" || len(c.Name) > 64 {
		fault("inbox: a consumer's Name must have 1 to 64 bytes, has %d", len(c.Name))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"KeepIDs", c.KeepIDs}, {"ReplayWindow", c.ReplayWindow}, {"LocalFor", c.LocalFor}, {"BackoffBase", c.BackoffBase},
		{"BackoffMax", c.BackoffMax}, {"UnavailableWait", c.UnavailableWait}, {"AttemptTimeout", c.AttemptTimeout}, {"UnhandledFor", c.UnhandledFor},
		{"LeaseTTL", c.LeaseTTL}, {"StopTimeout", c.StopTimeout},
	} {
		if d.value < 0 {
			fault("inbox: %s must not be negative, is %s", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"Concurrency", c.Concurrency}, {"RetryConcurrency", c.RetryConcurrency}, {"Batch", c.Batch},
		{"MaxInFlight", c.MaxInFlight}, {"MaxInFlightBytes", c.MaxInFlightBytes}, {"MaxAttempts", c.MaxAttempts},
		{"LocalAttempts", c.LocalAttempts},
	} {
		if n.value < 0 {
			fault("inbox: %s must not be negative, is %d", n.name, n.value)
		}
	}
	batch := 1
	switch {
	case c.Dedup == ByPosition && !(caps.Ordered && caps.Positions):
		fault("inbox: consumer %s remembers by watermark, and the source does not keep order or has no positions; use ByID", c.Name)
	case c.Dedup == ByPosition:
		batch = 100
	case c.Dedup != ByID:
		fault("inbox: Dedup is %d; give ByID or ByPosition", c.Dedup)
	case c.RequireOrder && !caps.Ordered:
		fault("inbox: consumer %s requires order, and the source does not keep the order of a key; use one that does (Kafka, "+
			"Redis, NATS or RabbitMQ with ordered=true), or unset RequireOrder", c.Name)
	}
	c.Batch = cmp.Or(c.Batch, batch)
	c.KeepIDs = cmp.Or(c.KeepIDs, 7*24*time.Hour)
	c.ReplayWindow = cmp.Or(c.ReplayWindow, 24*time.Hour)
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	c.RetryConcurrency = cmp.Or(c.RetryConcurrency, 4)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1024)
	c.MaxInFlightBytes = cmp.Or(c.MaxInFlightBytes, 16<<20)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.LocalAttempts = cmp.Or(c.LocalAttempts, 3)
	c.LocalFor = cmp.Or(c.LocalFor, 2*time.Second)
	c.BackoffBase = cmp.Or(c.BackoffBase, 200*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 60*time.Second)
	c.UnavailableWait = cmp.Or(c.UnavailableWait, 5*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Versions != nil {
		guard := *c.Versions
		guard.WaitFor = cmp.Or(guard.WaitFor, time.Minute)
		c.Versions = &guard
	}
	return c, errors.Join(faults...)
}

// batchTime is how long messages of a batch are begun in one transaction.
func (c *ConsumerConfig) batchTime() time.Duration { return cmp.Or(c.LeaseTTL, defaultLeaseTTL) / 3 }

// defaultLeaseTTL is that of relay.Config.
const defaultLeaseTTL = 15 * time.Second

// relay is the configuration of the relay that brings back what was put aside.
func (c *ConsumerConfig) relay() relay.Config {
	return relay.Config{
		Name: c.Name, Concurrency: c.RetryConcurrency, MaxAttempts: c.MaxAttempts, BackoffBase: c.BackoffBase,
		BackoffMax: c.BackoffMax, OnDead: c.OnDead, UnhandledFor: c.UnhandledFor, LeaseTTL: c.LeaseTTL,
		StopTimeout: c.StopTimeout, Logger: c.Logger, Version: c.Version,
		MaxInFlight: c.MaxInFlight, MaxInFlightBytes: c.MaxInFlightBytes, UnavailableWait: c.UnavailableWait,
	}
}

// tooShort says what to set when the source may deliver a message again after its ID was forgotten; "" if all is well.
func (c *ConsumerConfig) tooShort(caps postrider.SubscriberCapabilities) string {
	need := caps.RedeliveryWindow + c.ReplayWindow
	switch {
	case c.Dedup != ByID:
		return ""
	case caps.RedeliveryWindow == 0:
		return fmt.Sprintf("the source may deliver a message again without limit, its ID is forgotten after %s: "+
			"limit the source's retention or redelivery, or remember by watermark", c.KeepIDs)
	case c.KeepIDs < need:
		return fmt.Sprintf("the source may deliver a message again for %s and you may replay for %s, its ID is forgotten "+
			"after %s: set KeepIDs to %s or more", caps.RedeliveryWindow, c.ReplayWindow, c.KeepIDs, need)
	}
	return ""
}
