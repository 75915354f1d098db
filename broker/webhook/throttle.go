package webhook

import (
	"cmp"
	"net/http"
	"sync"

	"github.com/postrider/postrider"
)

// throttledKeys is how many keys in a row a receiver must have answered with a wait before it counts as unavailable: fewer may have a
// limit of their own.
const throttledKeys = 3

// throttle recognizes a receiver that refuses all requests for a time. The waits of single messages would cost each of them an
// attempt, and a write for each key.
type throttle struct {
	mu   sync.Mutex
	keys map[string]bool // of the messages since the last other answer
}

// judge returns the error of an answer: UnavailableFor if the receiver asked to wait for this key and the last ones.
func (t *throttle) judge(m *postrider.Message, status int, err error) error {
	after := postrider.OutcomeOf(err).After
	t.mu.Lock()
	defer t.mu.Unlock()
	if after == 0 || status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		t.keys = nil
		return err
	}
	if t.keys == nil {
		t.keys = make(map[string]bool, throttledKeys)
	}
	if len(t.keys) < throttledKeys {
		t.keys[cmp.Or(m.Key, m.ID)] = true
	}
	if len(t.keys) < throttledKeys {
		return err
	}
	return postrider.UnavailableFor(after, err)
}
