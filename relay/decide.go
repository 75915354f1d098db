package relay

import (
	"context"
	"errors"
	"slices"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// decideAll applies operators' decisions between attempts: when no call on the key is out and everything that this process
// knows about the key is recorded. Due returns decisions again that must wait.
func (r *Relay) decideAll(ctx context.Context, decisions []store.Decision, parts []*partition) error {
	var failed error
	for i := range decisions {
		d := &decisions[i]
		p, ready := r.prepareDecision(d, parts)
		if !ready {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		err := held.New(r.store).Apply(bounded, r.cfg.Name, p.Lease, d.ID)
		cancel()
		r.decided(p, d, err)
		if err != nil && !errors.Is(err, store.ErrLeaseLost) {
			failed = err // the others do not wait for it
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// endDecisions resumes the work on keys whose decisions no longer need to be applied: a decision was applied, but the answer
// was lost.
func (r *Relay) endDecisions(open []store.Decision, parts []*partition) {
	for _, p := range parts {
		p.EndDecisions(func(key string) bool {
			return slices.ContainsFunc(open, func(d store.Decision) bool {
				return d.Partition == p.Lease.Partition && d.Key == key && !d.AboutMessage()
			})
		})
	}
}

// prepareDecision stops the work on a key, and reports whether a decision about it, or about a parked message, can be applied
// now.
func (r *Relay) prepareDecision(d *store.Decision, parts []*partition) (_ *partition, ready bool) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	p := r.partitions[d.Partition]
	if p == nil || p.Leaving() || !slices.Contains(parts, p) {
		return nil, false
	}
	if d.AboutMessage() {
		return p, !p.WorksOnParked(d.Key, d.Sequence)
	}
	return p, p.PrepareDecision(d.Key)
}

// decided resumes the work on a key.
func (r *Relay) decided(p *partition, d *store.Decision, err error) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	if err == nil && !d.AboutMessage() {
		p.Decided(d.Key)
	}
	switch {
	case p.Gone():
	case errors.Is(err, store.ErrLeaseLost):
		r.leaseLost(p)
	case err == nil:
		r.cfg.Logger.Info("operator's decision is applied", "relay", r.cfg.Name, "key", d.Key, "message", d.MessageID, "verb", d.Verb, "by", d.By)
	}
	signal(r.dueWake)
}

// awaitsDecision reports whether a run is a parked message about which a decision is open: its next attempt waits for the
// decision.
func awaitsDecision(in *store.ParkedRun, open []store.Decision) bool {
	return in.Key == "" && len(in.Entries) > 0 && slices.ContainsFunc(open, func(d store.Decision) bool {
		return d.AboutMessage() && d.Partition == in.Partition && d.Sequence == in.Entries[0].Message.Sequence
	})
}
