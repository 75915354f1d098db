package webhook

import (
	"cmp"
	"net/http"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

const (
	// refusedKeys is how many keys a receiver must have refused in a row before it counts as unavailable: fewer may have a limit,
	// or a fault, of their own.
	refusedKeys = 3
	// outageAfter is for how long nothing but answers of a gateway must have come before the receiver behind it counts as
	// unavailable: messages that make it fail must not stop the others.
	outageAfter = 2 * time.Second
)

// throttle recognizes a receiver that refuses all requests: it asks to wait, or a gateway answers in its place that it is not there.
// The waits of single messages would cost each of them an attempt, and a write for each key.
type throttle struct {
	mu    sync.Mutex
	keys  map[string]bool // of the messages that were refused since the last other answer
	since time.Time       // when the first of them was refused
}

// judge returns the error of an answer: Unavailable if all answers since some time were refusals of several keys.
func (t *throttle) judge(m *postrider.Message, status int, err error) error {
	after := postrider.OutcomeOf(err).After
	asked := after > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable)
	gateway := status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
	t.mu.Lock()
	defer t.mu.Unlock()
	if !asked && !gateway {
		t.keys = nil
		return err
	}
	if t.keys == nil {
		t.keys, t.since = make(map[string]bool, refusedKeys), time.Now()
	}
	if len(t.keys) < refusedKeys {
		t.keys[cmp.Or(m.Key, m.ID)] = true
	}
	switch {
	case len(t.keys) < refusedKeys:
		return err
	case asked:
		return postrider.UnavailableFor(after, err)
	case time.Since(t.since) < outageAfter:
		return err
	default:
		return postrider.Unavailable(err)
	}
}
