package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
)

// Source is a store in which causes and effects of a message are searched for.
type Source struct {
	Name string
	// Open returns the store. An error is one of Causation.Incomplete, and does not end the search.
	Open func(ctx context.Context) (Store, error)
}

// CausationSearch bounds a search for causes and effects. The zero value is a quick one, for a page.
type CausationSearch struct {
	// Thorough reads up to 50,000 messages of each log and takes up to 3 s, instead of 5,000 and 1 s.
	Thorough bool
	// Limit is how many effects are returned: 1 to 200. Default: 200.
	Limit int
}

const (
	// maxEffects is how many effects are returned, maxChain how long a chain of causes or effects is followed.
	maxEffects = 200
	maxChain   = 20
)

// bounds returns how many messages of each log are read, how long the search takes, and how many effects it returns.
func (s CausationSearch) bounds() (messages int, within time.Duration, effects int) {
	messages, within, effects = 5_000, time.Second, s.Limit
	if s.Thorough {
		messages, within = 50_000, 3*time.Second
	}
	if effects <= 0 || effects > maxEffects {
		effects = maxEffects
	}
	return messages, within, effects
}

// Causation says what caused a message and what it caused, by the causation IDs of messages, as far as that was found.
type Causation struct {
	Message Linked `json:"message"`
	// Causes leads to the message: its cause comes last, the cause of which comes before it.
	Causes []Linked `json:"causes"`
	// Effects are the messages that it caused, oldest first, each with its own.
	Effects []Linked `json:"effects"`
	// More counts further effects that were found and are not returned, as in Linked.
	More int `json:"more,omitzero"`
	// Complete: everything that is still in the stores was found. Otherwise, Incomplete says what was not, and why.
	Complete   bool  `json:"complete"`
	Incomplete []Gap `json:"incomplete,omitempty"`
}

// Linked is a message of a chain of causes and effects.
type Linked struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	Topic         string `json:"topic"`
	Key           string `json:"key,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	// Store is the name of the Source that has it, in whose log it is if one is. StoredAt is a time of the clock of that store.
	Store    string    `json:"store"`
	StoredAt time.Time `json:"stored_at,omitzero"`
	// DeadLetter is the number of its oldest open dead letter, 0 if there is none, and DeadIn the store that has it.
	DeadLetter int64    `json:"dead_letter,omitzero"`
	DeadIn     string   `json:"dead_in,omitempty"`
	Effects    []Linked `json:"effects,omitempty"`
	More       int      `json:"more,omitzero"`

	causationID string
	sequence    int64 // 0 if it is not in the log
}

// GapReason says why a part of the answer is missing.
type GapReason string

// The reasons for gaps.
const (
	GapUnreachable   GapReason = "unreachable"     // a store cannot be read
	GapTime          GapReason = "time"            // the time was up
	GapMessages      GapReason = "messages"        // so many messages of a log were read
	GapCauseNotFound GapReason = "cause_not_found" // no store has the cause
	GapRetention     GapReason = "retention"       // the message has left the log, so its effects may have too
	GapLimit         GapReason = "limit"           // there are more effects than are returned
	GapDepth         GapReason = "depth"           // the chain is longer than it is followed
	GapCycle         GapReason = "cycle"           // a message would be its own cause
)

// Gap is a part of an answer that is missing.
type Gap struct {
	// Store is where, "" for everywhere.
	Store  string    `json:"store,omitempty"`
	Reason GapReason `json:"reason"`
	// Text is a sentence for people.
	Text string `json:"text"`
	// Until is how far the log was read.
	Until time.Time `json:"until,omitzero"`
	// MessageID is the message that was not found, or at which the chain was cut.
	MessageID string `json:"message_id,omitempty"`
	// Err is the error of an unreachable store.
	Err error `json:"-"`
}

// FindCausation finds what caused a message and what it caused, in several stores. The message itself may be in any of them.
//
// Causes are looked up by the time in their IDs, or near the time of their effects. For effects, each log is entered by its index where the message
// is, or at its time, and read from there until its end or the bounds of the search: no index of the log has causation IDs, since publishing
// would pay for it. Errors: ErrNotFound.
func FindCausation(ctx context.Context, sources []Source, id string, search CausationSearch) (Causation, error) {
	messages, within, limit := search.bounds()
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := &chase{messages: messages, within: within}
	c.open(ctx, sources)
	root, err := c.root(ctx, id)
	if err != nil {
		if whole.Err() != nil {
			err = whole.Err()
		}
		return Causation{}, err
	}
	out := Causation{Message: root, Causes: c.causes(ctx, root)}
	out.Effects, out.More = c.effects(ctx, root, limit)
	c.mark(ctx, &out)
	if whole.Err() != nil {
		return Causation{}, whole.Err()
	}
	out.Incomplete, out.Complete = c.gaps, len(c.gaps) == 0
	return out, nil
}

// root finds the message itself.
func (c *chase) root(ctx context.Context, id string) (Linked, error) {
	if found := c.first(ctx, id); found != nil {
		if found.sequence == 0 {
			c.gap(Gap{
				Store: found.Store, Reason: GapRetention, MessageID: id,
				Text: "The message is no longer in the log, so messages that it caused may have left it too.",
			})
		}
		return *found, nil
	}
	for _, g := range c.gaps {
		switch {
		case g.Err != nil:
			return Linked{}, fmt.Errorf("search for %q in %s: %w", id, g.Store, g.Err)
		case g.Reason == GapTime: // the message may be there
			return Linked{}, fmt.Errorf("search for %q in %s: no answer in time: %w", id, g.Store, context.DeadlineExceeded)
		}
	}
	if err := ctx.Err(); err != nil {
		return Linked{}, fmt.Errorf("search for %q: %w", id, err)
	}
	return Linked{}, fmt.Errorf("%w: %q is not in the log, the parked messages or the dead letters of %s", ErrNotFound, id, c.names())
}

// first looks for the message in one store after the other, and prefers one that has it in its log.
func (c *chase) first(ctx context.Context, id string) (copied *Linked) {
	for _, s := range c.stores {
		within, cancel := c.part(ctx, rootPart)
		found, err := s.find(within, id, time.Time{}, c.messages)
		if err != nil {
			s.slow = within.Err() != nil
			s.failed = !s.slow
			c.failed(within, s.name, err)
		}
		cancel()
		switch {
		case found != nil && found.sequence > 0:
			return found
		case copied == nil:
			copied = found
		}
	}
	return copied
}

// causes follows causation IDs from a message to what caused it.
func (c *chase) causes(ctx context.Context, of Linked) []Linked {
	ctx, cancel := c.part(ctx, causesPart)
	defer cancel()
	out, seen := []Linked{}, map[string]bool{of.ID: true}
	for at := of; at.causationID != ""; {
		switch {
		case seen[at.causationID]:
			c.gap(cycleAt(at.causationID))
			return out
		case len(out) == maxChain:
			c.gap(Gap{Reason: GapDepth, MessageID: at.ID, Text: fmt.Sprintf("Only the last %d causes are shown.", maxChain)})
			return out
		}
		seen[at.causationID] = true
		cause, ok := c.find(ctx, at.causationID, at.StoredAt)
		if !ok {
			c.gap(Gap{Reason: GapCauseNotFound, MessageID: at.causationID, Text: fmt.Sprintf(
				"The cause %s was not found in %s. It may have left the log, or be in a store that is not configured here.", at.causationID, c.names())})
			return out
		}
		out, at = append([]Linked{cause}, out...), cause
	}
	return out
}

func cycleAt(id string) Gap {
	return Gap{Reason: GapCycle, MessageID: id, Text: fmt.Sprintf("By the causation IDs, %s would have caused itself. The chain ends there.", id)}
}

// linked describes a message of a store.
func linked(m *postrider.Message, store string, inLog bool) Linked {
	l := Linked{
		ID: m.ID, Type: m.Type, Topic: m.Topic, Key: m.Key, CorrelationID: m.CorrelationID, Store: store, StoredAt: m.CreatedAt, causationID: m.CausationID,
	}
	if inLog {
		l.sequence = m.Sequence
	}
	return l
}
