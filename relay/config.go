package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/retention"
	"github.com/postrider/postrider/store"
)

// The defaults for messages that fail.
const (
	DefaultMaxAttempts = 10
	DefaultBackoffBase = 200 * time.Millisecond
	DefaultBackoffMax  = 60 * time.Second
	// DefaultAttemptTimeout bounds an attempt, except with HandleTx (see Config.AttemptTimeout).
	DefaultAttemptTimeout = 30 * time.Second
)

// Config configures a relay. The zero value of each field means its default.
type Config struct {
	// Name identifies the relay and its progress in the outbox, e.g. "to-nats": 1 to 64 bytes. Required. Processes that run a
	// relay of the same name on the same outbox share its work. No consumer of that database may have this name.
	Name string

	// Disabled switches the relay off: Run does nothing until it is told to stop, and the outbox does not know of this process. The
	// messages wait in the outbox. For a relay that is to stop in all processes for a while, see package pause. Default: false.
	Disabled bool

	// Publisher is where the messages go. Without one, the relay passes them to handlers in this process (Handle, HandleFunc).
	// A relay has one destination. For several destinations, run several relays on the same outbox: each has its own progress,
	// so a broker that is down stops only its own relay.
	Publisher postrider.Publisher
	// Topics are the patterns of the topics that the relay takes; other topics are skipped. "*" in a pattern matches any run of
	// characters. Default: all topics. In a rolling deployment the filter of the newest version is in effect for all processes
	// of the relay: a process that is not configured for a topic parks its messages as unhandled, or publishes them.
	Topics []string
	// AcceptUnordered lets the relay start with a publisher that cannot keep the order of a key.
	AcceptUnordered bool
	// RequireDedupe is the minimum time for which the broker must drop duplicates of a message, for consumers without an inbox.
	// Default: none.
	RequireDedupe time.Duration
	// RequireMessageBytes is the size (postrider.Message.Size) of the largest message that the publisher must accept; a
	// publisher that does not know its limit passes. Default: none.
	RequireMessageBytes int
	// Start is where a relay begins that is new to this outbox. Default: FromOldest.
	Start Start

	// Concurrency is the maximum number of concurrent calls of handlers or of Publish. Default: 16 for handlers, 4 for a
	// publisher. With HandleTx it is at most the number of connections that the store's pool has for transactions: all but one
	// on PostgreSQL; on MySQL all but two, if the pool has a limit. A call with a single message that takes longer than
	// ParkAfter no longer counts; see MaxSlowCalls.
	Concurrency int
	// MaxSlowCalls is the maximum number of calls in addition to Concurrency while others take longer than ParkAfter, so that
	// handlers that hang, even if they ignore their context, stop only their own keys. Default: 4 times Concurrency; none with
	// HandleTx, where each needs another connection from the pool.
	MaxSlowCalls int
	// MaxBatch is the maximum number of messages in one Publish call, unless the publisher's limit is lower. Default: 1,000.
	MaxBatch int
	// TxBatch is the maximum number of fresh messages in one transaction of HandleTx, except that messages that were committed
	// late together stay together. After a third of LeaseTTL a transaction starts no further message: what is done is
	// committed, and the rest follows in the next one. Default: 100.
	TxBatch int
	// MaxInFlight and MaxInFlightBytes bound the messages that the relay holds in memory: two thirds for fresh messages, one
	// third for parked messages that are due. One message of each kind is always allowed. While a call is slow, a partition is
	// read at most 8 times MaxInFlight messages beyond it. Defaults: 8,192 and 16 MiB.
	MaxInFlight, MaxInFlightBytes int
	// MaxHeldKeys bounds the held keys in memory, not counting those that the relay is working on. If more are held, each fetch
	// looks up the keys of its messages. Default: 100,000.
	MaxHeldKeys int

	// Gate, if not nil, is asked before messages are read, and before any is started. While it allows none, nothing is fetched, parked
	// or counted as an attempt; calls in progress end as usual. It is for a relay whose handlers all need the same dependency, e.g. a
	// *resilience.Operation with a breaker. Default: none.
	Gate Gate

	// MaxRate is the maximum number of messages per second that the processes of the relay send or handle together, retries
	// included: each has the part of it that corresponds to its part of the partitions. Messages that wait for it are neither
	// parked nor counted as attempts. Default: no limit.
	MaxRate float64
	// Burst is how many messages may be sent at once after a pause. Default: those of one second at MaxRate, at least one.
	Burst int

	// MaxAttempts is the number of attempts before a message is dead-lettered. A handler finds it with
	// postrider.MaxAttemptsFromContext. Default: 10.
	MaxAttempts int
	// BackoffBase and BackoffMax bound the wait before attempt n+1, which is random between 0 and min(BackoffMax,
	// BackoffBase·2^(n−1)) ("full jitter"). The attempt also waits until all messages before it in its partition are delivered
	// or parked, which ParkAfter bounds, or for a batch of a publisher AttemptTimeout. Defaults: 200 ms and 60 s.
	BackoffBase, BackoffMax time.Duration
	// Policies say otherwise for some message types: how often and when they are retried, and which errors discard a message. The
	// first one that matches a message's type applies. Default: none.
	Policies []Policy
	// OnDead says what happens to a key after its blocking message is dead-lettered. Default: ContinueKey.
	OnDead OnDead
	// ParkAfter is the time after which a message that is still being worked on is parked, so that it does not hold back the
	// cursor; its handler continues. It is also the time after which messages queued after a slow message are parked if they
	// hold back the cursor or fill the memory. Default: 5 s. It applies to calls with a single message, and not to HandleTx,
	// where a partition waits for its slowest message: bound that with AttemptTimeout.
	ParkAfter time.Duration
	// UnhandledFor is how long a message whose type or schema version has no handler is kept, counted from when it was first
	// parked, or from its delivery time, before it is dead-lettered; it is tried at least twice. Default: forever, so that a
	// process of an older release does not dead-letter the messages of a newer one.
	UnhandledFor time.Duration
	// UnavailableWait is how long a message is postponed, without counting an attempt, when its handler reports that a
	// dependency is unavailable (postrider.Unavailable). Default: 5 s.
	UnavailableWait time.Duration
	// AttemptTimeout ends the context of an attempt, or of a Publish call; the attempt has failed if it then returns an error.
	// A handler that ignores its context continues: its key waits for it, and with HandleTx its partition, whose lease this
	// process keeps.
	//
	//  - Default: 30 s.
	//  - Default with HandleTx: two thirds of LeaseTTL, or of the time after which the database ends an idle transaction, if that is
	//    shorter than 30 s (10 s by default). A value must be below that time, or Run fails.
	//  - Negative: no timeout.
	AttemptTimeout time.Duration

	// LeaseTTL is the time within which others take over the partitions of a process that has died. A lease lives for nine
	// tenths of it and is renewed every third of it, or every tenth while there are other processes. Default: 15 s.
	LeaseTTL time.Duration
	// PollMin and PollMax bound the wait between two polls of the outbox: it starts at PollMin after work was found and doubles
	// up to PollMax. Wake-ups are additional, and so is the store's search for what other processes publish (store.Listener), about
	// every 100 ms. Polls for parked messages that are due are also at least PollMin apart, so a retry can be that much later
	// than its backoff. Defaults: 25 ms and 1 s.
	PollMin, PollMax time.Duration
	// SettleInterval and SettleBatch say when outcomes are recorded: after this time or this many outcomes, whichever comes
	// first. Defaults: 5 ms and 1,000.
	SettleInterval time.Duration
	SettleBatch    int
	// StopTimeout is how long Run waits for calls in progress when its context ends, before it cancels them. Default: 30 s.
	StopTimeout time.Duration

	// KeepDelivered is how long the log keeps delivered messages. Default: 24 h; negative: they are not kept.
	KeepDelivered time.Duration
	// KeepTopics are longer times for topics: see retention.Config.Topics.
	KeepTopics map[string]time.Duration
	// MaxLogBytes drops the oldest delivered messages when the log exceeds this size. Default: no limit.
	MaxLogBytes int64
	// KeepRedrives is how long a redrive of dead letters, or a replay, remains visible after its end. If several relays of an
	// outbox differ, the shortest time counts. Default: 30 days; negative: forever.
	KeepRedrives time.Duration

	// Interceptors wrap every call of a handler, PublishInterceptors every call of the publisher; the first is outermost.
	Interceptors        []Interceptor
	PublishInterceptors []PublishInterceptor
	// Observer is told what the relay does, for metrics and traces. Default: none.
	Observer *observe.Relay
	// Propagator restores the trace context of a message in the context of its handler. Default: none.
	Propagator postrider.Propagator
	// Logger receives messages for operators. Default: slog.Default().
	Logger *slog.Logger
	// Version is shown to operators with the process. Default: none.
	Version string
}

// Start says where a relay that is new to the log begins.
type Start int

// The start positions.
const (
	// FromOldest starts with the oldest message that the log still has.
	FromOldest Start = iota
	// FromNow starts with messages that are published from now on.
	FromNow
)

// OnDead says what happens to a key after its blocking message is dead-lettered.
type OnDead int

// The choices after a message is dead-lettered.
const (
	// ContinueKey: the queued messages continue.
	ContinueKey OnDead = iota
	// HoldKey: the key stays held until an operator redrives or discards the dead letter, or skips it.
	HoldKey
)

// Interceptor wraps the handling of a message, e.g. for metrics or a tenant's context.
type Interceptor func(next postrider.Handler) postrider.Handler

// PublishFunc is the signature of Publisher.Publish.
type PublishFunc func(ctx context.Context, msgs []*postrider.Message) []error

// PublishInterceptor wraps the publishing of a batch. It must meet the contract of postrider.Publisher.
type PublishInterceptor func(next PublishFunc) PublishFunc

// complete returns a copy with every default filled in, or all errors of the configuration.
func (c Config) complete() (Config, error) {
	faults := c.faults()
	concurrency := 16
	if c.Publisher != nil {
		concurrency = 4
		caps := c.Publisher.Capabilities()
		faults = append(faults, c.CheckCapabilities(caps)...)
		c.MaxBatch = cmp.Or(c.MaxBatch, 1000)
		if caps.MaxBatch > 0 {
			c.MaxBatch = min(c.MaxBatch, caps.MaxBatch)
		}
	} else {
		c.MaxBatch = 1
	}
	c.Concurrency = cmp.Or(c.Concurrency, concurrency)
	c.TxBatch = cmp.Or(c.TxBatch, 100)
	if c.MaxRate > 0 {
		c.Burst = cmp.Or(c.Burst, max(int(min(c.MaxRate, math.MaxInt32)), 1))
		c.TxBatch = min(c.TxBatch, c.Burst)
	}
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 8192)
	c.MaxInFlightBytes = cmp.Or(c.MaxInFlightBytes, 16<<20)
	c.MaxHeldKeys = cmp.Or(c.MaxHeldKeys, 100_000)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	c.BackoffBase = cmp.Or(c.BackoffBase, DefaultBackoffBase)
	c.BackoffMax = cmp.Or(c.BackoffMax, DefaultBackoffMax)
	c.ParkAfter = cmp.Or(c.ParkAfter, 5*time.Second)
	c.UnavailableWait = cmp.Or(c.UnavailableWait, 5*time.Second)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 15*time.Second)
	c.PollMin = cmp.Or(c.PollMin, 25*time.Millisecond)
	c.PollMax = max(cmp.Or(c.PollMax, time.Second), c.PollMin)
	c.SettleInterval = cmp.Or(c.SettleInterval, 5*time.Millisecond)
	c.SettleBatch = cmp.Or(c.SettleBatch, 1000)
	c.StopTimeout = cmp.Or(c.StopTimeout, 30*time.Second)
	c.KeepDelivered = cmp.Or(c.KeepDelivered, 24*time.Hour)
	c.KeepRedrives = cmp.Or(c.KeepRedrives, 30*24*time.Hour)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(faults...)
}

// faults returns the errors of single fields.
func (c *Config) faults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Name == "" || len(c.Name) > 64 {
		fault("relay: Name must have 1 to 64 bytes, has %d", len(c.Name))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"BackoffBase", c.BackoffBase}, {"BackoffMax", c.BackoffMax}, {"ParkAfter", c.ParkAfter},
		{"UnhandledFor", c.UnhandledFor}, {"UnavailableWait", c.UnavailableWait}, {"LeaseTTL", c.LeaseTTL},
		{"RequireDedupe", c.RequireDedupe}, {"PollMin", c.PollMin}, {"PollMax", c.PollMax}, {"SettleInterval", c.SettleInterval}, {"StopTimeout", c.StopTimeout},
	} {
		if d.value < 0 {
			fault("relay: %s must not be negative, is %s", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"Concurrency", c.Concurrency}, {"MaxSlowCalls", c.MaxSlowCalls}, {"MaxBatch", c.MaxBatch}, {"TxBatch", c.TxBatch}, {"MaxInFlight", c.MaxInFlight},
		{"MaxInFlightBytes", c.MaxInFlightBytes}, {"MaxHeldKeys", c.MaxHeldKeys}, {"MaxAttempts", c.MaxAttempts},
		{"Burst", c.Burst}, {"RequireMessageBytes", c.RequireMessageBytes}, {"SettleBatch", c.SettleBatch},
	} {
		if n.value < 0 {
			fault("relay: %s must not be negative, is %d", n.name, n.value)
		}
	}
	if c.MaxLogBytes < 0 {
		fault("relay: MaxLogBytes must not be negative, is %d", c.MaxLogBytes)
	}
	if c.MaxRate < 0 || math.IsNaN(c.MaxRate) || math.IsInf(c.MaxRate, 0) {
		fault("relay: MaxRate must not be negative, infinite or NaN, is %v; 0 stands for no maximum", c.MaxRate)
	}
	if c.Burst > 0 && c.MaxRate == 0 {
		fault("relay: Burst is %d and there is no MaxRate; set both", c.Burst)
	}
	for i, p := range c.Policies {
		if p.MaxAttempts < 0 {
			fault("relay: MaxAttempts of policy %d must not be negative, is %d", i, p.MaxAttempts)
		}
		if slices.Contains(p.Types, "") {
			fault(`relay: Types of policy %d holds an empty pattern; "*" stands for every type`, i)
		}
	}
	if keep := c.retention(); keep.Validate() != nil {
		fault("relay: KeepTopics: %w", keep.Validate())
	}
	for _, t := range c.Topics {
		if t == "" {
			fault(`relay: Topics holds an empty pattern; "*" stands for every topic`)
		}
	}
	return faults
}

// margin is how much sooner than LeaseTTL a lease ends, so that other processes have the time to notice; and how much sooner
// than its lease a process stops delivering.
func (c *Config) margin() time.Duration { return c.LeaseTTL / 10 }

func (c *Config) leaseLife() time.Duration { return c.LeaseTTL - c.margin() }

func (c *Config) retention() retention.Config {
	return retention.Config{For: max(c.KeepDelivered, 0), Topics: c.KeepTopics, MaxBytes: c.MaxLogBytes, Redrives: max(c.KeepRedrives, 0)}
}

// takes reports whether this process is configured for messages of a topic.
func (c *Config) takes(topic string) bool {
	return len(c.Topics) == 0 || store.MatchTopics(c.Topics, topic)
}
