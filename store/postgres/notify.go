package postgres

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// Wake implements store.Outbox: it wakes relays of this process at once, and those of other processes that listen by a notification,
// which has no topic.
func (s *Store) Wake(topics ...string) {
	s.wake.Wake(topics...)
	if s.notifier != nil {
		s.notifier.wake()
	}
}

// Subscribe implements store.Log.
func (s *Store) Subscribe(takes func(topic string) bool) (<-chan struct{}, func()) {
	return s.wake.Subscribe(takes)
}

// channel is the channel on which the processes of one outbox notify each other. The hash keeps its name within 63 bytes.
func (n names) channel() string {
	sum := n.sum()
	return "postrider_" + hex.EncodeToString(sum[:8])
}

// listening is the advisory lock that every listener shares, so that publishers see that somebody listens. It ends with the listener's
// connection.
func (n names) listening() (class, object uint32) {
	sum := n.sum()
	return binary.BigEndian.Uint32(sum[8:]), binary.BigEndian.Uint32(sum[12:])
}

func (n names) sum() [md5.Size]byte { return md5.Sum([]byte(n.schema + "." + n.prefix)) }

const (
	notifySQL = `select pg_catalog.pg_notify($1::text, $2::text)`
	// heardSQL reports whether a session other than $3 has the lock of a listener.
	heardSQL = `
select exists (select from pg_catalog.pg_locks l where l.locktype = 'advisory'::text and l.classid = $1::oid and l.objid = $2::oid
	and l.objsubid = 2::int2 and l.pid <> $3::int4
	and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()))`

	// notifyTimeout limits one notification, so that an unresponsive database blocks at most one connection.
	notifyTimeout = 5 * time.Second
	// askEvery is how long the answer to heardSQL is used: reading the locks of the server costs more than a notification. Whoever begins
	// to listen looks for messages first, and finds those of this time without notifications.
	askEvery = time.Second
	// notifyShare limits the part of the time in which a process notifies to a quarter, so that many publishers on a busy server
	// notify less often.
	notifyShare = 4
)

// notifier sends notifications, the first at once and then at most one per interval, outside any transaction: notifications
// inside the publishing transactions would serialize their commits. It sends none while no other process listens.
type notifier struct {
	store   *Store
	process string // the payload, by which a process knows its own notifications
	life    context.Context
	end     context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	pending bool // several wakes before it is read count as one
	running bool

	asked   time.Time // these belong to run
	heard   bool
	failing bool
}

func newNotifier(s *Store) *notifier {
	n := &notifier{store: s, process: rand.Text()}
	n.life, n.end = context.WithCancel(context.Background())
	return n
}

func (n *notifier) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = true
	if !n.running && n.life.Err() == nil {
		n.running = true
		n.done.Go(n.run)
	}
}

func (n *notifier) close() {
	n.mu.Lock()
	n.end()
	n.mu.Unlock()
	n.done.Wait()
}

// run sends what is pending, and ends.
func (n *notifier) run() {
	for n.take() {
		select {
		case <-n.life.Done():
		case <-time.After(n.send()):
		}
	}
}

// take reports whether there is something to send, otherwise run ends.
func (n *notifier) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = n.pending && n.life.Err() == nil
	n.pending = false
	return n.running
}

// send notifies if somebody listens, and returns how long to wait before the next notification.
func (n *notifier) send() time.Duration {
	ctx, cancel := context.WithTimeout(n.life, notifyTimeout)
	defer cancel()
	began := time.Now()
	err := n.ask(ctx, began)
	if err == nil && n.heard {
		_, err = n.store.pool.Exec(ctx, notifySQL, n.store.names.channel(), n.process)
	}
	if err != nil && !n.failing && n.life.Err() == nil && !errors.Is(err, ErrDriver) { // with another driver, nobody is notified
		n.store.config.Logger.Warn("postrider: notifying other processes failed; they find the messages by polling", "error", err)
	}
	n.failing = err != nil
	if n.failing || !n.heard {
		return askEvery
	}
	return max(n.store.config.NotifyEvery, (notifyShare-1)*time.Since(began))
}

// ask finds out whether another process listens.
func (n *notifier) ask(ctx context.Context, now time.Time) error {
	if now.Sub(n.asked) < askEvery {
		return nil
	}
	class, object := n.store.names.listening()
	err := n.store.pool.QueryRow(ctx, heardSQL, class, object, n.store.listener.Load()).Scan(&n.heard)
	if err == nil {
		n.asked = now
	}
	return err
}
