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

// patience is how long no broker may answer before Receive reports it, and between two reports.
const patience = 5 * time.Second

// health sees whether brokers answer, by what the client tells its hooks.
type health struct {
	tell func()
	cuts atomic.Int64 // how often a broker did not answer a fetch

	mu      sync.Mutex
	failing time.Time // since when there is nothing but errors; zero if the last answer was one
	err     error
	beaten  time.Time // the last sign of life from the group
	asking  bool      // Subscription.isMember waits for an answer, which it reads itself
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

// The requests by which the group knows that a member lives.
var (
	joinKey, syncKey, heartbeatKey = (&kmsg.JoinGroupRequest{}).Key(), (&kmsg.SyncGroupRequest{}).Key(), (&kmsg.HeartbeatRequest{}).Key()
)

// fetchKey is that of the requests that bring records. One that fails may be followed by records of another log.
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
		h.beaten = time.Now()
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

func (h *health) beat(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.After(h.beaten) {
		h.beaten = now
	}
}

// ask says that an answer to a heartbeat is no sign of life by itself: the group may answer that it does not know the member.
func (h *health) ask(asking bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asking = asking
}

// lastBeat is when the last sign of life came from the group.
func (h *health) lastBeat() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.beaten
}

// unreachable says why no broker has answered for a while, once in that while; nil if one has.
func (h *health) unreachable(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() || now.Sub(h.failing) < patience {
		return nil
	}
	h.failing = now
	return h.err
}

// next is when unreachable may have something to say; zero if nothing is wrong.
func (h *health) next() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() {
		return time.Time{}
	}
	return h.failing.Add(patience)
}
