package admin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// Message explains a message by its ID, with causes as the principal may see them. Errors: inspect.ErrNotFound.
func (s *Service) Message(ctx context.Context, p Principal, id string) (inspect.Explanation, error) {
	if err := s.allow(ctx, p, "Message", ""); err != nil {
		return inspect.Explanation{}, err
	}
	e, err := inspect.Message(ctx, s.store, id)
	if err != nil {
		return e, err
	}
	return s.explained(p, e.Message.Type, e.Message.ID, e), nil
}

// Key explains what blocks a key. Errors: ErrKeyHidden, inspect.ErrNotFound.
func (s *Service) Key(ctx context.Context, p Principal, key string) (e inspect.Explanation, err error) {
	if err := s.allow(ctx, p, "Key", ""); err != nil {
		return e, err
	}
	asked := key
	if key, err = s.named(ctx, p, anyType, asked); err != nil {
		return e, err
	}
	if e, err = inspect.Key(ctx, s.store, key); err != nil {
		return e, err
	}
	id, _ := strings.CutPrefix(asked, hiddenPrefix)
	return s.explained(p, anyType, id, e), nil
}

// explained hides keys, causes and the answers of receivers; id is that of the message, or of one with the key.
func (s *Service) explained(p Principal, kind, id string, e inspect.Explanation) inspect.Explanation {
	sees := s.seesCauses(p, kind)
	if e.Message != nil {
		m := *e.Message
		m.Key = s.key(p, kind, m.Key, id)
		e.Message = &m
	}
	if e.Key != nil {
		e.Key = &inspect.KeyInfo{Key: s.key(p, "", e.Key.Key, id), Partition: e.Key.Partition}
	}
	e.Actions = s.keyless(p, id, e.Actions)
	for i := range e.Places {
		at := &e.Places[i]
		at.Cause, at.History = s.cause(p, kind, at.Cause), s.attempts(p, kind, at.History)
		at.Actions = s.keyless(p, id, at.Actions)
		if at.Down != nil { // by the answer to any message
			down := *at.Down
			down.Cause = s.anyCause(p, down.Cause)
			at.Down = &down
		}
		if at.HeldKey != nil {
			at.HeldKey.Key = s.key(p, "", at.HeldKey.Key, id)
			blocking := kind
			if at.State != inspect.Blocking { // another message blocks the key, whose type is not known here
				blocking = anyType
			}
			at.HeldKey.Cause = s.cause(p, blocking, at.HeldKey.Cause)
		}
		at.Redrives = slices.Clone(at.Redrives)
		for n := range at.Redrives {
			at.Redrives[n].Cause = s.cause(p, kind, at.Redrives[n].Cause)
		}
		for n := range at.Recorded {
			r := &at.Recorded[n]
			if r.Error = s.cause(p, kind, r.Error); !sees {
				r.Answer, r.AnswerBytes = "", nil
			}
			r.RequestSHA256 = ""
		}
	}
	return e
}

// keyless hides the keys of actions.
func (s *Service) keyless(p Principal, id string, actions []inspect.Action) []inspect.Action {
	actions = slices.Clone(actions)
	for i := range actions {
		actions[i].Key = s.key(p, "", actions[i].Key, id)
	}
	return actions
}

// RelayPage is everything about one relay or consumer.
type RelayPage struct {
	RelayInfo
	Reading  int64               `json:"reading"`
	Held     []store.HeldInfo    `json:"held"`
	Parked   []store.ParkedCount `json:"parked_by_reason"`
	Problem  *Problem            `json:"problem,omitempty"`
	Consumed *store.ConsumerStatus
}

// Relay returns everything about a relay or consumer. Errors: store.ErrUnknownRelay.
func (s *Service) Relay(ctx context.Context, p Principal, name string) (out RelayPage, err error) {
	if err := s.allow(ctx, p, "Relay", name); err != nil {
		return out, err
	}
	r, err := s.reading(ctx)
	if err != nil {
		return out, err
	}
	i := slices.IndexFunc(r.Relays, func(r store.RelayStatus) bool { return r.Name == name })
	if i < 0 {
		return out, store.ErrUnknownRelay
	}
	out.RelayInfo, out.Reading = s.info(r.Relays[i], 180), r.Number
	if problem, ok := out.problem(s.cfg.Target); ok {
		out.Problem = &problem
	}
	for h, err := range s.held().ListHeld(ctx, name) {
		if err != nil {
			return out, err
		}
		if len(out.Held) == heldShown {
			break
		}
		h.Cause, h.Key = s.anyCause(p, h.Cause), s.key(p, "", h.Key, h.MessageID)
		out.Held = append(out.Held, h)
	}
	if out.Parked, err = s.held().CountParked(ctx, name); err != nil {
		return out, err
	}
	if out.Kind != store.KindConsumer {
		return out, nil
	}
	consumers, err := s.store.Consumers(ctx)
	if i := slices.IndexFunc(consumers, func(c store.ConsumerStatus) bool { return c.Name == name }); i >= 0 {
		out.Consumed = &consumers[i]
	}
	return out, err
}

// heldShown is how many held keys the page of a relay shows.
const heldShown = 50

// Found is a page that a search has found.
type Found struct {
	// Kind is "message", "key", "dead letter", "saga" or "same correlation ID".
	Kind, Text, Path string
}

// Search is what Find has found.
type Search struct {
	Found []Found
	// LogUnread: the log is long, and it was not read to its end. There may be a message with the ID nevertheless, or more messages with the
	// correlation ID.
	LogUnread bool
	// DeadUnread: there are more dead letters than a search looks at, so there may be a key that is only in others.
	DeadUnread bool
}

const (
	// findWithin bounds the time for which a search reads the log: once for an ID, and once for a correlation ID.
	findWithin = 200 * time.Millisecond
	// correlatedShown is how many messages with a correlation ID a search shows.
	correlatedShown = 50
)

// Find searches for a message ID, a key, the number of a dead letter, the ID of a saga, or a correlation ID of recent messages.
func (s *Service) Find(ctx context.Context, p Principal, text string) (out Search, err error) {
	if err := s.allow(ctx, p, "Find", ""); err != nil {
		return out, err
	}
	if text = strings.TrimSpace(text); text == "" {
		return out, nil
	}
	add := func(kind, text, path string) { out.Found = append(out.Found, Found{kind, text, path}) }
	if number, err := strconv.ParseInt(strings.TrimPrefix(text, "#"), 10, 64); err == nil && number > 0 {
		switch _, err := s.dead().ShowDead(ctx, number); {
		case err == nil:
			add("dead letter", deadName(number), deadPath(number))
		case !errors.Is(err, deadletter.ErrNotFound):
			return out, err
		}
	}
	saga, err := s.findSaga(ctx, p, text)
	switch {
	case err == nil:
		add("saga", saga.Saga+" "+text, "/sagas/"+escape(text))
	case !errors.Is(err, store.ErrNoSaga):
		return out, err
	}
	known, complete, err := inspect.Known(ctx, s.store, text, findWithin)
	if out.LogUnread = !complete && !known; err != nil {
		return out, err
	}
	if known {
		add("message", text, "/messages/"+escape(text))
	}
	key, err := s.named(ctx, p, anyType, text)
	switch {
	case errors.Is(err, ErrKeyHidden), errors.Is(err, inspect.ErrNotFound):
		return out, nil
	case err != nil:
		return out, err
	}
	if err := s.findKey(ctx, key, text, &out); err != nil || len(out.Found) > 0 {
		return out, err
	}
	found, complete, err := inspect.Correlated(ctx, s.store, text, correlatedShown, findWithin)
	for _, m := range found {
		add("same correlation ID", m.Type+" "+m.ID, "/messages/"+escape(m.ID))
	}
	out.LogUnread = out.LogUnread || !complete
	return out, err
}

// SagaOf returns the saga that messages with a correlation ID belong to. Errors: store.ErrNoSaga.
func (s *Service) SagaOf(ctx context.Context, p Principal, correlationID string) (out store.SagaIdentity, err error) {
	if err := s.allow(ctx, p, "SagaOf", ""); err != nil {
		return out, err
	}
	i, err := s.findSaga(ctx, p, correlationID)
	s.sagaNamed(p, &i.SagaIdentity)
	return i.SagaIdentity, err
}

// findKey adds the key if it is held anywhere, or has dead letters.
func (s *Service) findKey(ctx context.Context, key, text string, out *Search) error {
	e, err := inspect.Key(ctx, s.store, key)
	if err != nil {
		return err
	}
	for _, at := range e.Places {
		if at.State == inspect.Held || at.Load != nil && at.Load.Dead.N > 0 {
			out.Found = append(out.Found, Found{"key", text, KeyPath(text)})
			return nil
		}
	}
	dead, err := s.dead().FindDead(ctx, store.DeadFilter{Key: key, State: store.DeadAny}, 0, 0, nil)
	if err != nil {
		return err
	}
	if dead.Total > 0 {
		out.Found = append(out.Found, Found{"key", text, KeyPath(text)})
	}
	out.DeadUnread = dead.Total == 0 && !dead.Complete
	return nil
}

// Saga is an instance of a saga without its data.
type Saga struct {
	store.SagaSummary
	Aliases []store.SagaAlias      `json:"aliases,omitempty"`
	Labels  map[string]string      `json:"labels,omitempty"`
	History []store.SagaTransition `json:"history"`
	// More: there are more transitions than are shown.
	More bool `json:"more,omitempty"`
	// Questions wait for an answer.
	Questions []SagaQuestion `json:"questions,omitempty"`
}

// sagaHistory is how many transitions a page shows.
const sagaHistory = 500

// Sagas returns up to limit instances, in the order of their start, after the given run.
func (s *Service) Sagas(ctx context.Context, p Principal, f store.SagaFilter, after string, limit int) (out []store.SagaSummary, counts []store.SagaCount, err error) {
	if err := s.allow(ctx, p, "Sagas", ""); err != nil {
		return nil, nil, err
	}
	if out, err = s.store.ListSagas(ctx, f, after, limit); err != nil {
		return nil, nil, err
	}
	for i := range out {
		out[i].Detail = s.anyCause(p, out[i].Detail)
		s.sagaNamed(p, &out[i].SagaIdentity)
	}
	counts, err = s.store.CountSagas(ctx)
	return out, counts, err
}

// Saga returns an instance with its history. Errors: store.ErrNoSaga.
func (s *Service) Saga(ctx context.Context, p Principal, id string) (out Saga, err error) {
	if err := s.allowChange(ctx, p, Change{Action: "Saga", On: id, Key: id}); err != nil {
		return out, err
	}
	i, err := s.findSaga(ctx, p, id)
	if err != nil {
		return out, err
	}
	if out.Aliases, out.Labels, err = s.store.SagaNames(ctx, i.Run); err != nil {
		return out, err
	}
	if out.History, err = s.store.SagaHistory(ctx, i.Run, 0, sagaHistory+1); err != nil {
		return out, err
	}
	if out.More = len(out.History) > sagaHistory; out.More {
		out.History = out.History[:sagaHistory]
	}
	out.SagaSummary = store.SagaSummary{
		SagaIdentity: i.SagaIdentity, SagaCondition: i.SagaCondition, HoldsKey: i.HoldsKey, Rev: i.Rev, Age: i.Age,
		StartedAt: i.StartedAt, UpdatedAt: i.UpdatedAt, StuckAt: i.StuckAt, EndedAt: i.EndedAt,
	}
	if asked, err := saga.Questions(i); err == nil { // what a newer build has written is shown without them
		out.Questions = s.questions(p, asked)
	}
	if i.Deadline > 0 {
		out.DeadlineAt = i.StartedAt.Add(i.Deadline)
	}
	if i.SagaTimes.TimerAt > 0 {
		out.SagaSummary.TimerAt = i.StartedAt.Add(i.SagaTimes.TimerAt)
	}
	out.Detail = s.anyCause(p, i.Detail)
	s.sagaNamed(p, &out.SagaIdentity)
	s.sagaValues(p, &out)
	for n := range out.History {
		t := &out.History[n]
		t.Note, t.Patch = s.anyCause(p, t.Note), nil
		for e := range t.Entries {
			t.Entries[e].Text = s.anyCause(p, t.Entries[e].Text)
		}
	}
	return out, nil
}

// sagaValues hides the values of aliases and labels where keys are hidden.
func (s *Service) sagaValues(p Principal, i *Saga) {
	if s.ShowsKeys(p, "") {
		return
	}
	i.Aliases, i.Labels = slices.Clone(i.Aliases), maps.Clone(i.Labels)
	for n := range i.Aliases {
		i.Aliases[n].Value = hiddenText
	}
	for name := range i.Labels {
		i.Labels[name] = hiddenText
	}
}
