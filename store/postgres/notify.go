package postgres

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/address"
)

// Wake implements store.Outbox: it wakes relays of this process at once and, if Config.Notify is on, those of other processes by
// a notification.
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
	sum := md5.Sum([]byte(n.schema + "." + n.prefix))
	return "postrider_" + hex.EncodeToString(sum[:8])
}

// notifier sends notifications, the first at once and then at most one per interval, outside any transaction: notifications
// inside the publishing transactions would serialize their commits.
type notifier struct {
	store   *Store
	pending chan struct{} // capacity 1: several wakes before it is read count as one
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func startNotifier(s *Store) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{store: s, pending: make(chan struct{}, 1), stop: cancel}
	n.done.Go(func() { n.run(ctx) })
	return n
}

func (n *notifier) wake() {
	select {
	case n.pending <- struct{}{}:
	default:
	}
}

func (n *notifier) close() {
	n.stop()
	n.done.Wait()
}

// notifyTimeout limits one notification, so that an unresponsive database blocks at most one connection.
const notifyTimeout = 5 * time.Second

func (n *notifier) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.pending:
		}
		if err := n.send(ctx); err != nil && ctx.Err() == nil {
			n.store.config.Logger.Warn("postrider: notifying other processes failed; they find the messages by polling", "error", err)
		}
		timer.Reset(n.store.config.NotifyEvery)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (n *notifier) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.store.pool.Exec(ctx, "select pg_catalog.pg_notify($1::text, '')", n.store.names.channel())
	return err
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
	config, err := pgx.ParseConfig(s.config.ListenDSN)
	if err != nil {
		return fmt.Errorf("Config.ListenDSN: %s", address.Reason(err)) // the text of err has the connection string
	}
	pause := reconnectAfter
	for ctx.Err() == nil {
		listened, err := s.listen(ctx, config)
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
	// Find what was committed while nobody listened.
	s.wake.Wake()
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return true, err
		}
		s.wake.Wake()
	}
}
