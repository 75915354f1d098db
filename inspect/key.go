package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Key explains what blocks a key at each relay and consumer. It also explains a key that no message has.
func Key(ctx context.Context, store Store, key string) (Explanation, error) {
	status, err := store.Status(ctx)
	if err != nil {
		return Explanation{}, err
	}
	partition := postrider.PartitionOf(key, "", status.Partitions)
	e := Explanation{Now: status.Now, Key: &KeyInfo{key, partition}, Places: []Place{}}
	for _, r := range status.Relays {
		p, err := keyAt(ctx, store, key, r, partitionOf(r, partition), status)
		if err != nil {
			return Explanation{}, err
		}
		e.Places = append(e.Places, p)
	}
	return e, nil
}

// keyAt says what blocks a key at a relay or consumer; q is the status of its partition, nil for none.
func keyAt(ctx context.Context, s Store, key string, r store.RelayStatus, q *store.PartitionStatus, status store.Status) (Place, error) {
	p := Place{Name: r.Name, Kind: r.Kind, Paused: r.Paused}
	if q != nil {
		p.Owner = q.Owner
	}
	p.Down = outage(r, status.Now)
	h, _, err := held.New(s).ShowHeld(ctx, r.Name, key, 0)
	switch {
	case err == nil:
		p.held(h, status)
	case !errors.Is(err, store.ErrNotHeld):
		return p, err
	case p.Kind == store.KindConsumer:
		p.State, p.Next = NotHeld, Next{Code: NextUnknown, Text: "it reads a broker, not this log"}
	case q == nil:
		p.State = NotBegun
		p.Next = Next{Code: NextProcess, Text: "it has not begun with this partition yet"}
		p.Actions = []Action{{Kind: ActionStart, Relay: p.Name}}
	default:
		p.State = NotHeld
		p.await(Next{Code: NextDelivery}, "", "")
		if p.Owner != "" && p.Paused == nil && p.Down == nil {
			p.Next.Text = p.Owner + " works on it"
		}
	}
	dead, err := deadletter.New(s).FindDead(ctx, store.DeadFilter{Relay: r.Name, Key: key}, 0, 0, nil)
	if err != nil {
		return p, err
	}
	p.Load = &Load{Dead: dead.Count()}
	if q != nil && p.Kind == store.KindRelay {
		p.Load.Backlog, p.Load.BacklogAgeSeconds = q.Backlog, q.Age.Seconds()
	}
	return p, nil
}

// held explains a held key.
func (p *Place) held(h store.HeldInfo, status store.Status) {
	p.State, p.Since, p.HeldKey = Held, h.Since, heldKeyOf(h)
	p.Reason, p.Cause, p.Attempts = string(h.Reason), h.Cause, h.Attempts
	p.Actions = heldActions(h)
	if h.NextAttempt.IsZero() {
		p.Next = Next{Code: NextDecision, Text: undecided}
		return
	}
	p.until(h.NextAttempt, status.Now)
}

// Relay explains how a relay or consumer is doing. Errors: store.ErrUnknownRelay.
func Relay(ctx context.Context, s store.StatusReader, name string) (Explanation, error) {
	status, err := s.Status(ctx)
	if err != nil {
		return Explanation{}, err
	}
	i := slices.IndexFunc(status.Relays, func(r store.RelayStatus) bool { return r.Name == name })
	if i < 0 {
		return Explanation{}, fmt.Errorf("%w: %q", store.ErrUnknownRelay, name)
	}
	return Explanation{Now: status.Now, Relay: name, Places: []Place{relayPlace(status.Relays[i], status.Now)}}, nil
}

func relayPlace(r store.RelayStatus, now time.Time) Place {
	p := Place{Name: r.Name, Kind: r.Kind, Topics: r.Topics, Paused: r.Paused, Down: outage(r, now)}
	p.Load = &Load{
		Backlog: r.Backlog, BacklogAgeSeconds: r.Age.Seconds(), Dead: r.Dead, Parked: r.Parked, Held: r.Held,
		OldestParkedSeconds: r.OldestParked.Seconds(),
	}
	for _, o := range r.Owners {
		if o.Alive {
			p.Load.Processes++
		}
	}
	switch {
	case p.Paused != nil:
		p.State, p.Since = Paused, p.Paused.At
		p.paused()
	case r.Backlog.N == 0 && r.Parked.N == 0:
		p.State, p.Next = Idle, Next{Code: NextNothing, Text: "nothing: there is no message to deliver"}
		if p.Kind == store.KindConsumer {
			p.Next.Text = "nothing is parked; it reads a broker, not this log"
		}
	case p.Load.Processes == 0:
		p.State, p.Next = Stopped, Next{Code: NextProcess, Text: "nothing until a process runs"}
		p.Actions = []Action{{Kind: ActionStart, Relay: r.Name}}
	case p.Down != nil:
		p.State, p.Since = Down, p.Down.Since
		p.down()
	default:
		p.State, p.Next = Working, Next{Code: NextDelivery, Text: "its processes continue"}
	}
	return p
}
