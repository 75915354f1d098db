package relay

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// noteFirst logs where a relay begins that has delivered nothing yet: the log may have old messages, which a new relay delivers unless
// its configuration says otherwise. It is silent if other processes may have begun.
func (r *Relay) noteFirst(leases []store.Lease, alive int) {
	if r.begun || len(leases) == 0 {
		return
	}
	r.begun = true
	for _, l := range leases {
		if l.Settled > 0 || len(l.Filter.Topics) == 0 { // a consumer's relay has no filter, and reads no log
			return
		}
	}
	if alive > 1 || len(leases) < r.total {
		return
	}
	from := "the oldest message of the log"
	if r.cfg.Start == FromNow {
		from = "what is published after its first start"
	}
	r.cfg.Logger.Info("relay has delivered nothing yet", "relay", r.cfg.Name, "begins_with", from)
}

// unmatchedLoop warns once if the log has messages and none had a topic of the relay: a topic that is mistyped looks like a quiet day.
// It looks when the relay has begun and after messages were skipped, until one was taken.
func (r *Relay) unmatchedLoop(ctx context.Context) {
	reader, ok := r.store.(store.StatusReader)
	if !ok || canonicalTopics(r.cfg.Topics)[0] == "*" {
		return
	}
	for looked := -1; attempt.Sleep(ctx, r.cfg.LeaseTTL/3); {
		r.mu.Lock()
		taken, skipped := r.taken, r.skipped
		r.mu.Unlock()
		if taken {
			return
		}
		if skipped == looked {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		status, err := reader.Status(bounded)
		cancel()
		if err != nil {
			continue
		}
		i := slices.IndexFunc(status.Relays, func(s store.RelayStatus) bool { return s.Name == r.cfg.Name })
		if i < 0 || status.Relays[i].Backlog.N > 0 {
			continue // its cursors have not passed everything
		}
		if looked = skipped; !status.Relays[i].Unmatched() {
			continue
		}
		var others []string
		for _, u := range status.Unrouted {
			others = append(others, u.Topic)
		}
		r.cfg.Logger.Warn("no message so far had a topic that the relay takes; are they spelled as those of the messages?",
			"relay", r.cfg.Name, "topics", strings.Join(status.Relays[i].Topics, " "), "unrouted_topics", strings.Join(others, " "))
		return
	}
}
