package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// preparation turns the messages of one Publish call into complete, valid copies.
type preparation[Tx any] struct {
	outbox     *Outbox[Tx]
	now        time.Time
	handled    *postrider.Message // the message being handled in this context, or nil
	actor      string             // that of the handled message
	injected   map[string]string  // headers from the propagator
	discardIDs bool

	seen    int // messages so far
	ids     []string
	faults  []postrider.Fault
	hookErr error
}

func (o *Outbox[Tx]) preparation(ctx context.Context) preparation[Tx] {
	p := preparation[Tx]{outbox: o, now: time.Now(), handled: postrider.MessageFromContext(ctx)}
	if p.handled != nil {
		p.actor = p.handled.Headers[postrider.Actor.Name()]
	}
	return p
}

// add returns complete, checked copies of msgs, without those that a hook suppressed; err says whether they may be
// written.
func (p *preparation[Tx]) add(ctx context.Context, msgs []*postrider.Message) []*postrider.Message {
	if propagator := p.outbox.config.Propagator; propagator != nil {
		p.injected = make(map[string]string)
		propagator.Inject(ctx, p.injected)
	}
	copies := make([]postrider.Message, len(msgs))
	ready := make([]*postrider.Message, 0, len(msgs))
	if !p.discardIDs {
		p.ids = make([]string, len(msgs))
	}
	for i, m := range msgs {
		if m == nil {
			p.check(nil)
			continue
		}
		c := &copies[i]
		*c = *m
		p.complete(c)
		if suppressed := p.before(ctx, c); p.hookErr != nil {
			return nil
		} else if suppressed {
			p.seen++
			continue
		}
		p.check(c)
		ready = append(ready, c)
		if !p.discardIDs {
			p.ids[i] = c.ID
		}
	}
	return ready
}

// complete fills in defaults and the fields taken from the context.
func (p *preparation[Tx]) complete(m *postrider.Message) {
	o := p.outbox
	m.Sequence, m.Attempt, m.CreatedAt = 0, 0, time.Time{}
	if id, named := m.Replay(); id+named != "" { // from a message that a handler passes on: consumers would take the new one for a duplicate
		m.Headers = maps.Clone(m.Headers)
		delete(m.Headers, postrider.HeaderReplay)
		delete(m.Headers, postrider.HeaderReplayFor)
	}
	if h := p.handled; h != nil {
		inherit(&m.CorrelationID, cmp.Or(h.CorrelationID, h.ID), postrider.MaxCorrelationIDBytes)
		inherit(&m.CausationID, h.ID, postrider.MaxCausationIDBytes)
		inherit(&m.Tenant, h.Tenant, postrider.MaxTenantBytes)
	}
	// Copy the headers if anything other than the store may see the copy.
	if len(p.injected) > 0 || len(o.config.Hooks) > 0 || p.actor != "" {
		headers := make(map[string]string, len(m.Headers)+len(p.injected)+1)
		if p.actor != "" {
			headers[postrider.Actor.Name()] = p.actor
		}
		maps.Copy(headers, m.Headers)
		maps.Copy(headers, p.injected)
		m.Headers = headers
	}
	m.FillDefaults(o.config.Source, p.now)
}

// inherit fills in a text from the handled message. A message of another sender need not keep the limits.
func inherit(text *string, from string, limit int) {
	if *text == "" {
		*text = stored.Fit(from, limit)
	}
}

// before runs the BeforePublish hooks and says whether one of them suppressed the message.
func (p *preparation[Tx]) before(ctx context.Context, m *postrider.Message) (suppressed bool) {
	if !p.outbox.hasBefore {
		return false
	}
	for _, h := range p.outbox.config.Hooks {
		if h.BeforePublish == nil {
			continue
		}
		if err := h.BeforePublish(ctx, m); errors.Is(err, ErrSuppress) {
			return true
		} else if err != nil {
			p.hookErr = fmt.Errorf("before publishing message %d (type %q): %w", p.seen, m.Type, err)
			return false
		}
	}
	m.FillDefaults(p.outbox.config.Source, p.now)
	return false
}

func (p *preparation[Tx]) check(m *postrider.Message) {
	for _, f := range p.outbox.faults(m) {
		f.Index = p.seen
		p.faults = append(p.faults, f)
	}
	p.seen++
}

// faults returns what is wrong with a complete message.
func (o *Outbox[Tx]) faults(m *postrider.Message) (faults []postrider.Fault) {
	if invalid, ok := errors.AsType[*postrider.ValidationError](m.Validate(o.limits)); ok {
		faults = invalid.Faults
	}
	if m != nil && m.Type == store.ErasedType { // relays would skip it
		faults = append(faults, postrider.Fault{Field: "type", Problem: "is reserved for messages that were erased"})
	}
	return faults
}

// err is the error that prevents the messages from being written, or nil.
func (p *preparation[Tx]) err() error {
	if p.hookErr != nil {
		return p.hookErr
	}
	if len(p.faults) > 0 {
		return &postrider.ValidationError{Faults: p.faults, Batch: p.seen}
	}
	return nil
}
