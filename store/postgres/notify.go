package postgres

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/address"
)

// Wake implements store.Outbox: it wakes relays of this process at once, and those of other processes that listen by a notification.
func (s *Store) Wake() {
	s.wake.Wake()
	if s.notifier != nil {
		s.notifier.wake()
	}
}

// Subscribe implements store.Log.
func (s *Store) Subscribe() (<-chan struct{}, func()) { return s.wake.Subscribe() }

// channel is the channel on which the processes of one outbox notify each other. The hash keeps its name within 63 bytes.
func (n names) channel() string {
	sum := n.sum()
	return "postrider_" + hex.EncodeToString(sum[:8])
}

// listening is the number of the advisory lock that every listener shares: whoever cannot have it alone knows that somebody listens.
// It ends with the listener's connection.
func (n names) listening() int64 {
	sum := n.sum()
	return int64(binary.BigEndian.Uint64(sum[8:]))
}

func (n names) sum() [md5.Size]byte { return md5.Sum([]byte(n.schema + "." + n.prefix)) }

const (
	// notifySQL notifies if somebody listens.
	notifySQL = `select pg_catalog.pg_notify($1::text, $2::text) where not pg_catalog.pg_try_advisory_xact_lock($3::bigint)`
	// notifyTimeout limits one notification, so that an unresponsive database blocks at most one connection.
	notifyTimeout = 5 * time.Second
	// unheardFor is the pause after a notification that nobody would have heard, or that failed. Whoever begins to listen looks for
	// messages at once.
	unheardFor = time.Second
)

// notifier sends notifications, the first at once and then at most one per interval, outside any transaction: notifications
// inside the publishing transactions would serialize their commits.
type notifier struct {
	store   *Store
	process string        // the payload, by which a process knows its own notifications
	pending chan struct{} // capacity 1: several wakes before it is read count as one
	life    context.Context
	end     context.CancelFunc
	failing bool

	mu      sync.Mutex
	started bool
	done    sync.WaitGroup
}

func newNotifier(s *Store) *notifier {
	n := &notifier{store: s, process: rand.Text(), pending: make(chan struct{}, 1)}
	n.life, n.end = context.WithCancel(context.Background())
	return n
}

func (n *notifier) wake() {
	select {
	case n.pending <- struct{}{}:
		n.start()
	default: // it has not begun with the one before
	}
}

// start starts the goroutine with the first wake.
func (n *notifier) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.started && n.life.Err() == nil {
		n.started = true
		n.done.Go(n.run)
	}
}

func (n *notifier) close() {
	n.mu.Lock()
	n.end()
	n.mu.Unlock()
	n.done.Wait()
}

func (n *notifier) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-n.pending:
		}
		pause := unheardFor
		if n.send() {
			pause = n.store.config.NotifyEvery
		}
		timer.Reset(pause)
		select {
		case <-n.life.Done():
			return
		case <-timer.C:
		}
	}
}

// send reports whether there was somebody to notify.
func (n *notifier) send() (heard bool) {
	ctx, cancel := context.WithTimeout(n.life, notifyTimeout)
	defer cancel()
	tag, err := n.store.pool.Exec(ctx, notifySQL, n.store.names.channel(), n.process, n.store.names.listening())
	if n.life.Err() != nil {
		return false
	}
	if err != nil && !n.failing && !errors.Is(err, ErrDriver) { // with another driver, relays poll
		n.store.config.Logger.Warn("postrider: notifying other processes failed; they find the messages by polling", "error", err)
	}
	n.failing = err != nil
	return err == nil && tag.RowsAffected() > 0
}

// Listen pauses before it reconnects; the pause doubles up to a limit.
const (
	reconnectAfter    = 100 * time.Millisecond
	reconnectAfterMax = 10 * time.Second
)

// Listen implements store.Listener on its own connection to Config.ListenDSN.
func (s *Store) Listen(ctx context.Context) error {
	if s.config.ListenDSN == "" {
		return nil
	}
	config, err := pgxpool.ParseConfig(s.config.ListenDSN) // it may have options of a pool
	if err != nil {
		return fmt.Errorf("Config.ListenDSN: %s", address.Reason(err)) // the text of err has the connection string
	}
	pause := reconnectAfter
	for ctx.Err() == nil {
		listened, err := s.listen(ctx, config.ConnConfig)
		if ctx.Err() != nil {
			break
		}
		if listened {
			pause = reconnectAfter
		}
		s.config.Logger.Warn("postrider: listening for notifications failed; polling goes on", "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectAfterMax)
	}
	return nil
}

// listen receives notifications until the connection breaks, and reports whether it began to listen.
func (s *Store) listen(ctx context.Context, config *pgx.ConnConfig) (listened bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // a failed close does no harm
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{s.names.channel()}.Sanitize()); err != nil {
		return false, err
	}
	if _, err := conn.Exec(ctx, "select pg_catalog.pg_advisory_lock_shared($1::bigint)", s.names.listening()); err != nil {
		return false, err
	}
	// Find what was committed while nobody listened.
	s.wake.Wake()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		if s.notifier == nil || n.Payload != s.notifier.process {
			s.wake.Wake()
		}
	}
}
