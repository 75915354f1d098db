// Package retention drops what an outbox need not keep. Relays use it about once a minute. Where no relay runs, e.g. because another program
// reads the log, call it yourself, or run postrider maintain:
//
//	keeper, err := retention.New(store, retention.Config{For: 24 * time.Hour, WithoutRelay: true})
//	...
//	done, err := keeper.Maintain(ctx)
//
// A message that a registered relay has not delivered is never dropped.
package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/store"
)

// Config says how long things are kept.
type Config struct {
	// For is how long a delivered message is kept; 0 drops it as soon as every relay has passed it.
	For time.Duration
	// Topics are longer times for topics, by patterns in which * stands for any text; the longest one that matches counts. Messages are
	// dropped from the oldest on, so the first message that must stay keeps all later ones, of every topic. For must be longer than any
	// transaction that publishes is open: a message that is committed later than that may have been passed already.
	Topics map[string]time.Duration
	// MaxBytes drops the oldest delivered messages when the log exceeds this size; 0 means no limit. It drops none that Topics keeps, and
	// with Topics none that is younger than 10 minutes.
	MaxBytes int64
	// Redrives is how long a redrive or replay is kept after its end; 0 means forever.
	Redrives time.Duration
	// WithoutRelay drops messages that are older than For while no relay is registered: something else reads the log. Otherwise nothing
	// is dropped then.
	WithoutRelay bool
}

// Validate reports the errors in a configuration.
func (c *Config) Validate() error {
	var errs []error
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		if c.Topics[topic] <= c.For {
			errs = append(errs, fmt.Errorf("topic %q is kept for %s, which must be longer than that of all topics, %s", topic, c.Topics[topic], c.For))
		}
	}
	if c.WithoutRelay && c.For <= 0 {
		errs = append(errs, errors.New("without a relay, a time to keep messages is needed: nothing says what was delivered"))
	}
	return errors.Join(errs...)
}

// Store is what retention needs of a store. All stores of this module have it.
type Store interface {
	store.Records
	store.Maintainer
}

// Keeper maintains the log of one outbox. It is safe for concurrent use.
type Keeper struct {
	store  Store
	config Config

	mu sync.Mutex
	// passed is the sequence up to which no message is kept because of its topic.
	passed int64
}

// New returns a Keeper. Errors: those of Config.Validate.
func New(s Store, c Config) (*Keeper, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Keeper{store: s, config: c}, nil
}

// Maintain prepares space for new messages, and drops delivered messages and ended redrives and replays that are past retention. Any number of
// processes may call it at once. It keeps what replays have still to read, and everything while a legal hold is active;
// store.Maintained.Deferred says so.
func (k *Keeper) Maintain(ctx context.Context) (store.Maintained, error) {
	keep := store.Retention{For: max(k.config.For, 0), MaxBytes: k.config.MaxBytes, Redrives: max(k.config.Redrives, 0), WithoutRelay: k.config.WithoutRelay}
	why, err := k.keepFrom(ctx, &keep)
	if err != nil {
		return store.Maintained{}, err
	}
	if _, err := replay.New(k.store).Purge(ctx, keep.Redrives); err != nil { // none under a legal hold
		return store.Maintained{}, err
	}
	done, err := k.store.Maintain(ctx, keep)
	if why != "" {
		done.Deferred = strings.TrimPrefix(done.Deferred+"; "+why, "; ")
	}
	return done, err
}

// keepFrom sets from where on the log is kept, and returns the reason if that is its beginning.
func (k *Keeper) keepFrom(ctx context.Context, keep *store.Retention) (why string, err error) {
	replays, err := replay.New(k.store).KeepFrom(ctx)
	if err != nil {
		return "", err
	}
	if replays == 1 {
		why = "the whole log is kept for a replay that has not begun, or that cannot be read; see postrider replay list"
	}
	topics, err := k.topics(ctx)
	if err != nil {
		return "", err
	}
	keep.KeepFrom = earlier(replays, topics)
	op := store.Operation{Method: "CheckHold", Doing: "look for a legal hold"}
	err = k.store.View(ctx, op, func(r store.Reader) error {
		err := legalhold.Check(ctx, r)
		if errors.Is(err, legalhold.ErrHeld) {
			keep.KeepFrom, keep.Redrives, why, err = 1, 0, "nothing is dropped: "+err.Error(), nil
		}
		return err
	})
	return why, err
}

// earlier returns the lower of two sequences, of which 0 means none.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

const (
	pageLimit = 1_000
	// searchFor is how long one call searches the log for messages that are kept because of their topics.
	searchFor = 20 * time.Second
	// lateFor is how long a transaction may be open where Config.MaxBytes drops messages before Config.For is over.
	lateFor = 10 * time.Minute
)

// topics returns the first sequence to keep because of Config.Topics, 0 if there is none. It reads on in the log from where the last call
// ended: each message that may be dropped is read once by a process, without its payload. It reads none that is so young that another
// with a lower sequence may still be committed.
func (k *Keeper) topics(ctx context.Context) (from int64, err error) {
	if len(k.config.Topics) == 0 {
		return 0, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	op := store.Operation{Method: "KeepTopics", Doing: "look for messages to keep because of their topics"}
	var now time.Time
	if err := k.store.Change(ctx, op, func(w store.Writer) (err error) { now, err = w.Now(ctx); return err }); err != nil {
		return 0, err
	}
	for began := time.Now(); time.Since(began) < searchFor; {
		var page store.LogPage
		err := k.store.View(ctx, op, func(r store.Reader) (err error) {
			page, err = r.Logged(ctx, store.LogQuery{After: k.passed, UpTo: math.MaxInt64, Limit: pageLimit})
			return err
		})
		if err != nil {
			return 0, err
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if now.Sub(m.CreatedAt) < k.keptFor(m.Topic) {
				return m.Sequence, nil
			}
			k.passed = m.Sequence
		}
		if page.Last == math.MaxInt64 {
			break
		}
	}
	return k.passed + 1, nil
}

// keptFor returns how long messages of a topic are kept, if not for the size of the log. All of them are until they may be read.
func (k *Keeper) keptFor(topic string) time.Duration {
	longest := k.config.For
	if k.config.MaxBytes > 0 {
		longest = min(longest, lateFor)
	}
	for pattern, d := range k.config.Topics {
		if d > longest && store.MatchTopic(pattern, topic) {
			longest = d
		}
	}
	return longest
}
