package kafkabroker

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long no broker may answer before Receive reports it, and the minimum time between two reports.
const patience = 5 * time.Second

// health tracks whether brokers answer, using the client's hooks.
type health struct {
	tell func()
	cuts atomic.Int64 // number of failed fetches

	mu        sync.Mutex
	failing   time.Time // start of the current series of errors; zero if the last request succeeded
	err       error
	confirmed time.Time // last time that the group confirmed the membership
	asking    bool      // Subscription.isMember waits for an answer, which it evaluates itself
}

var (
	_ kgo.HookBrokerConnect = (*health)(nil)
	_ kgo.HookBrokerE2E     = (*health)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *health) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		h.failed(fmt.Errorf("connect to %s:%d: %w", meta.Host, meta.Port, err))
	}
}

// Keys of requests whose answers confirm the membership.
var (
	joinKey, syncKey, heartbeatKey = (&kmsg.JoinGroupRequest{}).Key(), (&kmsg.SyncGroupRequest{}).Key(), (&kmsg.HeartbeatRequest{}).Key()
)

// fetchKey is the key of fetch requests. After a failed one, the next records may come from another log.
var fetchKey = (&kmsg.FetchRequest{}).Key()

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (h *health) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	err := e2e.Err()
	if err != nil {
		if key == fetchKey {
			h.cuts.Add(1)
		}
		h.failed(fmt.Errorf("broker %s:%d: %w", meta.Host, meta.Port, err))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if key == joinKey || key == syncKey || key == heartbeatKey && !h.asking {
		h.confirmed = time.Now()
	}
	h.failing, h.err = time.Time{}, nil
}

func (h *health) failed(err error) {
	h.mu.Lock()
	first := h.failing.IsZero()
	if first {
		h.failing = time.Now()
	}
	h.err = err
	h.mu.Unlock()
	if first {
		h.tell()
	}
}

func (h *health) confirm(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.confirmed) {
		h.confirmed = now
	}
}

// ask disables counting of heartbeat answers: the group may answer that it does not know the member.
func (h *health) ask(asking bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking = asking
}

// lastConfirmed returns the last time that the group confirmed the membership.
func (h *health) lastConfirmed() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed
}

// unreachable returns the last error if no broker has answered for patience, at most once per patience; otherwise nil.
func (h *health) unreachable(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() || now.Sub(h.failing) < patience {
		return nil
	}
	h.failing = now
	return h.err
}

// next returns when unreachable may return an error; zero if there is no problem.
func (h *health) next() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() {
		return time.Time{}
	}
	return h.failing.Add(patience)
}
