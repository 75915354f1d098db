package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
)

// ConsumerConfig configures a consumer. The zero value of each field means its default.
type ConsumerConfig struct {
	// Name identifies the consumer and its progress, e.g. "order-view": 1 to 64 bytes. Required. Processes that run a
	// consumer of the same name on the same database share its work. No relay of that database may have this name.
	Name string

	// Disabled switches the consumer off: Run does nothing until it is told to stop. The messages wait in the broker, for as long as it
	// keeps them, and parked messages in the database. Default: false.
	Disabled bool

	// KeepIDs is how long the consumer keeps the ID of a consumed message. It must be at least the source's redelivery
	// window plus ReplayWindow; the consumer warns at start if it is shorter. A log redelivers nothing: it must be at least as
	// long as a publisher may send a message again. Default: 7 days.
	KeepIDs time.Duration
	// ReplayWindow is how far back you intend to replay messages with their old IDs. Default: 24 h.
	ReplayWindow time.Duration
	// RequireOrder refuses a source that does not keep the order of a key. Default: such a source is accepted, and the
	// consumer logs that there is no order.
	RequireOrder bool

	// Concurrency is the maximum number of concurrent transactions for incoming messages, RetryConcurrency that for
	// parked messages. Each transaction takes a connection: size the database's pool for both and four more, or
	// transactions wait for each other. On PostgreSQL one connection of the pool is reserved for other work. Defaults: 16
	// and 4.
	Concurrency, RetryConcurrency int
	// Batch is the largest number of messages in one transaction. If one of several fails, the transaction is run again
	// with a savepoint for each message, so that only the failed one is undone: handlers may run twice, which counts as
	// one attempt. Transactions start with 16 messages. Later ones have twice as many while they take less than 50 ms, and
	// half as many when they take longer than 200 ms. One that takes a third of LeaseTTL is rolled back and run again with as
	// many messages as it had time for. After a deadlock or another conflict with other transactions, each message has its own
	// transaction for a minute; set 1 if many messages change the same rows. Default: 1, and 100 for a log.
	Batch int
	// MaxInFlight and MaxInFlightBytes limit the messages that the consumer holds in memory; the last read may exceed
	// MaxInFlightBytes. From a log, half as many more are read ahead, and a partition is read at most 64 times MaxInFlight messages
	// beyond the first one that is not settled. Defaults: 1,024 and 16 MiB.
	MaxInFlight, MaxInFlightBytes int

	// Gate, if not nil, is asked before messages are read, and before any is started; see relay.Config.Gate. The broker's wait for
	// messages in memory is extended meanwhile. Default: none.
	Gate relay.Gate

	// MaxAttempts is the number of attempts before a message is dead-lettered. Default: 10.
	MaxAttempts int
	// ParkAfter is how often the consumer looks for slow keys: those that have much of MaxInFlight or MaxInFlightBytes (by default a 22nd), and
	// still have it at the next look. Their messages are parked, so that those of other keys are read on. A handler of such a key that has
	// been running for ParkAfter is interrupted: its context ends, and its message is parked with those after it. No attempt is
	// counted. Retries of parked messages are not interrupted. docs/inbox.md has the details. Default: 5 s.
	ParkAfter time.Duration
	// LocalAttempts and LocalFor limit the attempts that are made while the broker waits for the message: at most
	// LocalAttempts, none beginning later than LocalFor after the first. Then the message is parked and retried from
	// there, and its key is held. They apply to transactions of one message; otherwise a message that fails is
	// parked at once. Defaults: 3 and 2 s.
	LocalAttempts int
	LocalFor      time.Duration
	// BackoffBase and BackoffMax limit the wait before attempt n+1, which is random between 0 and min(BackoffMax,
	// BackoffBase·2^(n−1)) ("full jitter"). Defaults: 200 ms and 60 s.
	BackoffBase, BackoffMax time.Duration
	// Policies say otherwise for some message types; see relay.Policy. Default: none.
	Policies []relay.Policy
	// UnavailableWait is how long a message is parked, without counting an attempt, when its handler reports that a
	// dependency is unavailable (postrider.Unavailable), or when earlier versions are missing. Default: 5 s.
	UnavailableWait time.Duration
	// AttemptTimeout ends the context of an attempt. If the database ends idle transactions, it must be less than the
	// database's timeout, or NewConsumer fails. Default: two thirds of that timeout (10 s on PostgreSQL); none if there
	// is no such timeout.
	AttemptTimeout time.Duration
	// OnDead selects what happens to a key whose blocking message is dead-lettered. Default: relay.ContinueKey.
	OnDead relay.OnDead
	// Unhandled selects what happens to a message whose type has no handler. Default: HoldUnhandled.
	Unhandled Unhandled
	// UnhandledFor is how long such a message is held before it is dead-lettered. Default: forever.
	UnhandledFor time.Duration
	// Replays selects what happens to messages that an operator replayed. Default: HandleNamedReplays.
	Replays Replays
	// Versions orders the messages of a key by AggregateVersion. Default: none.
	Versions *VersionGuard

	// Context returns the context for a message's transaction and handler, e.g. with its tenant in the form that your
	// database layer expects. Default: the context unchanged; postrider.MessageFromContext finds the message in it.
	Context func(ctx context.Context, m *postrider.Message) context.Context
	// Interceptors wrap every call of a handler, inside its transaction; the first is outermost.
	Interceptors []relay.Interceptor
	// Observer is told what the consumer does, for metrics and traces. Default: none.
	Observer *observe.Consumer
	// Propagator restores the trace context of a message in the context of its handler. Default: none.
	Propagator postrider.Propagator

	// LeaseTTL is the TTL of the leases by which processes share parked messages and the partitions of a log. It also bounds each call of
	// the database outside handlers: a transaction whose call takes longer is run again. Default: 15 s.
	LeaseTTL time.Duration
	// StopTimeout is how long Run waits for running transactions when its context ends, before it cancels them. Default:
	// 30 s.
	StopTimeout time.Duration
	// Logger receives the consumer's log. Default: slog.Default().
	Logger *slog.Logger
	// Version is shown to operators next to the process. Default: none.
	Version string
}

// Unhandled selects what happens to messages without a handler.
type Unhandled int

// The choices for messages without a handler.
const (
	// HoldUnhandled parks them until a process has a handler, so that old processes do not lose messages for new ones
	// during a rolling deployment.
	HoldUnhandled Unhandled = iota
	// SkipUnhandled skips them, for a source that carries more than this consumer needs.
	SkipUnhandled
)

// VersionGuard applies the messages of a key in the order of their AggregateVersion, each version once. A message whose
// version is not above the last applied one is skipped, even if it has another ID; one whose version is not the next one
// waits or fails. Messages without a key or a version are not guarded. The consumer keeps one row per key.
type VersionGuard struct {
	// FromOne expects every key to begin with version 1. Set it when the source keeps no order and has everything from
	// the beginning. Default: the first message of a key may have any version, as for a consumer that joins late; later
	// messages with a lower version are skipped.
	FromOne bool
	// WaitFor is how long a message may wait for missing earlier versions. Its key is held meanwhile; a missing version
	// is processed first when it arrives. After WaitFor the message is dead-lettered, unless the version came and its handler waits for
	// something (postrider.Unavailable, Snooze). Default: 1 minute; negative: a gap is a failed attempt like any other.
	WaitFor time.Duration
}

// complete returns a copy with every default filled in, or all configuration errors.
func (c ConsumerConfig) complete(caps postrider.SubscriberCapabilities) (ConsumerConfig, error) {
	faults := c.faults(caps)
	batch := 1
	if caps.Log {
		batch = 100
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
	c.ParkAfter = cmp.Or(c.ParkAfter, 5*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Versions != nil {
		guard := *c.Versions
		guard.WaitFor = cmp.Or(guard.WaitFor, time.Minute)
		c.Versions = &guard
	}
	return c, errors.Join(faults...)
}

// faults returns the errors of single fields, and of what the source cannot do.
func (c *ConsumerConfig) faults(caps postrider.SubscriberCapabilities) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Name == "" || len(c.Name) > 64 {
		fault("inbox: a consumer's Name must have 1 to 64 bytes, has %d", len(c.Name))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"KeepIDs", c.KeepIDs}, {"ReplayWindow", c.ReplayWindow}, {"LocalFor", c.LocalFor}, {"BackoffBase", c.BackoffBase},
		{"BackoffMax", c.BackoffMax}, {"UnavailableWait", c.UnavailableWait}, {"ParkAfter", c.ParkAfter}, {"AttemptTimeout", c.AttemptTimeout}, {"UnhandledFor", c.UnhandledFor},
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
	switch {
	case c.Replays != HandleNamedReplays && c.Replays != HandleReplays:
		fault("inbox: Replays is %d; give HandleNamedReplays or HandleReplays", c.Replays)
	case c.RequireOrder && !caps.Ordered:
		fault("inbox: consumer %s requires order, and the source does not keep the order of a key; use one that does (Kafka, "+
			"Redis, NATS or RabbitMQ with ordered=true), or unset RequireOrder", c.Name)
	}
	return faults
}

// batchTime is how long a transaction may start messages of its batch.
func (c *ConsumerConfig) batchTime() time.Duration { return cmp.Or(c.LeaseTTL, defaultLeaseTTL) / 3 }

// defaultLeaseTTL is the default of relay.Config.
const defaultLeaseTTL = 15 * time.Second

// relay is the configuration of the relay that retries parked messages.
func (c *ConsumerConfig) relay() relay.Config {
	var parked *observe.Relay
	if c.Observer != nil {
		parked = c.Observer.Parked
	}
	return relay.Config{
		Observer: parked,
		Name:     c.Name, Concurrency: c.RetryConcurrency, MaxAttempts: c.MaxAttempts, BackoffBase: c.BackoffBase,
		BackoffMax: c.BackoffMax, OnDead: c.OnDead, UnhandledFor: c.UnhandledFor, LeaseTTL: c.LeaseTTL,
		StopTimeout: c.StopTimeout, Logger: c.Logger, Version: c.Version,
		MaxInFlight: c.MaxInFlight, MaxInFlightBytes: c.MaxInFlightBytes, UnavailableWait: c.UnavailableWait, ParkAfter: c.ParkAfter,
		Policies: c.Policies, Gate: c.Gate,
		AttemptTimeout: -1, // the consumer's bounds each call of a handler, of which a retry can have several
	}
}

// tooShort says what to change if the source may redeliver a message after its ID was removed; "" if nothing.
func (c *ConsumerConfig) tooShort(caps postrider.SubscriberCapabilities) string {
	need := caps.RedeliveryWindow + c.ReplayWindow
	switch {
	case caps.Log:
		return ""
	case caps.RedeliveryWindow == 0:
		return fmt.Sprintf("the source may deliver a message again without limit, its ID is removed after %s: "+
			"limit the source's retention or redelivery, or read it as a log, without a group", c.KeepIDs)
	case c.KeepIDs < need:
		return fmt.Sprintf("the source may deliver a message again for %s and you may replay for %s, its ID is removed "+
			"after %s: set KeepIDs to %s or more", caps.RedeliveryWindow, c.ReplayWindow, c.KeepIDs, need)
	}
	return ""
}
