package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// ErrKeyHidden: no rule shows keys to the role, so nothing is found by a key either: that would let somebody guess keys.
var ErrKeyHidden = errors.New("keys are hidden from your role, so nothing is found by key; open the page of a message, or use its ID")

const (
	// hiddenText stands for a hidden text that leads nowhere, hiddenPrefix with the ID of a message for its key. Where a key is asked
	// for, the latter is accepted too.
	hiddenText   = "hidden"
	hiddenPrefix = "hidden:"
)

// HiddenKey stands for the key of a message, to which it leads also those who do not see the key.
func HiddenKey(id string) string { return hiddenPrefix + id }

// Hidden reports whether a key, or a subject, is not shown as it is, and the ID of the message that stands for it, if there is one.
func Hidden(key string) (id string, hidden bool) {
	if key == hiddenText {
		return "", true
	}
	return strings.CutPrefix(key, hiddenPrefix)
}

// ShowsKeys reports whether the principal gets keys and subjects of messages of a type; with "", of all types.
func (s *Service) ShowsKeys(p Principal, kind string) bool {
	shows := func(r *Rule) bool { return slices.Contains(Roles, r.Keys) && p.Role.Includes(r.Keys) }
	if kind == "" || kind == anyType {
		return s.ofAllTypes(shows)
	}
	rule := s.ruleFor(kind)
	return rule != nil && shows(rule)
}

// key returns a key as the principal may see it; id is that of a message with this key, "" if none is known.
func (s *Service) key(p Principal, kind, key, id string) string {
	switch {
	case key == "" || s.ShowsKeys(p, kind):
		return key
	case id == "":
		return hiddenText
	}
	return HiddenKey(id)
}

// identified hides the key, the subject and the correlation ID of a message, which must be a copy. A correlation ID can be the ID of a saga;
// a causation ID is that of a message.
func (s *Service) identified(p Principal, m *postrider.Message) {
	m.Key = s.key(p, m.Type, m.Key, m.ID)
	m.Subject, m.CorrelationID = s.key(p, m.Type, m.Subject, ""), s.key(p, m.Type, m.CorrelationID, "")
}

// named returns the key that a principal names: the key itself if it is shown to the principal, or what key returned for it. Errors:
// ErrKeyHidden, inspect.ErrNotFound.
func (s *Service) named(ctx context.Context, p Principal, kind, text string) (string, error) {
	shows := text == "" || s.ShowsKeys(p, kind)
	if id, is := strings.CutPrefix(text, hiddenPrefix); is {
		switch e, err := inspect.Message(ctx, s.store, id); {
		case err == nil && e.Message.Key != "":
			return e.Message.Key, nil
		case err != nil && !errors.Is(err, inspect.ErrNotFound):
			return "", err
		case !shows:
			return "", fmt.Errorf("%w: no message with the ID %s has a key", inspect.ErrNotFound, id)
		}
	}
	if !shows {
		return "", ErrKeyHidden
	}
	return text, nil
}

// unnamed is an error whose text does not have a key.
type unnamed struct {
	error
	key string
}

func (u unnamed) Error() string { return withoutKey(u.error.Error(), u.key) }

// Unwrap returns the error itself.
func (u unnamed) Unwrap() error { return u.error }

// withoutKey replaces a key, as it is or quoted, in a text that was made of it.
func withoutKey(text, key string) string {
	quoted, _ := json.Marshal(key) //nolint:errchkjson // it never fails for a string
	for _, form := range []string{key, strings.Trim(string(quoted), `"`), strings.Trim(fmt.Sprintf("%q", key), `"`)} {
		if form != "" {
			text = strings.ReplaceAll(text, form, hiddenText)
		}
	}
	return text
}

// filtered hides the key and the cause of a filter.
func (s *Service) filtered(p Principal, f store.DeadFilter) store.DeadFilter {
	f.Cause, f.Key = s.cause(p, f.Type, f.Cause), s.key(p, f.Type, f.Key, "")
	return f
}

// shownEntry hides the key that an entry of the audit names.
func (s *Service) shownEntry(ctx context.Context, p Principal, e Entry) Entry {
	switch {
	case s.ShowsKeys(p, ""):
		return e
	case e.Key == "":
		return s.withoutNames(ctx, e)
	}
	e.On, e.Error, e.Reason = withoutKey(e.On, e.Key), withoutKey(e.Error, e.Key), withoutKey(e.Reason, e.Key)
	if e.Action == "Decide" || e.Action == "OperateSaga" || e.Action == "AnswerSaga" || strings.Contains(e.Path, escape(e.Key)) {
		e.Path = ""
	}
	e.Key = hiddenText
	return e
}

// withoutNames hides what an entry is about that does not say which key it names, as those of earlier versions, unless it names none.
func (s *Service) withoutNames(ctx context.Context, e Entry) Entry {
	on := hiddenText
	switch e.Action {
	case "Decide":
		verb, what, _ := strings.Cut(e.On, ": ")
		if strings.HasPrefix(what, "message ") {
			return e
		}
		on = verb + ": key " + hiddenText
	case "OperateSaga":
		if e.Path == "/sagas" || s.ofRun(ctx, e.Path) { // the former is about many
			return e
		}
		verb, _, _ := strings.Cut(e.On, " of saga ")
		on = verb + " of saga " + hiddenText
	case "Saga", "SagaPlans":
		if e.On == "" {
			return e
		}
	default:
		return e
	}
	e.On, e.Path = on, ""
	if e.Error != "" {
		e.Error = hiddenText
	}
	return e
}

// ofRun reports whether a path is that of an instance of a saga, by its run. An ID can look like a run, so the store says.
func (s *Service) ofRun(ctx context.Context, path string) bool {
	name, is := strings.CutPrefix(path, "/sagas/")
	run, err := url.PathUnescape(name)
	if !is || err != nil {
		return false
	}
	i, err := s.store.ShowSaga(ctx, run)
	return err == nil && i.Run == run
}

// shownReport leaves out fixes that name a key.
func (s *Service) shownReport(p Principal, r doctor.Report) doctor.Report {
	if s.ShowsKeys(p, "") {
		return r
	}
	r.Results = slices.Clone(r.Results)
	for i := range r.Results {
		findings := slices.Clone(r.Results[i].Findings)
		for n := range findings {
			findings[n].Fix = slices.DeleteFunc(slices.Clone(findings[n].Fix), func(f doctor.Fix) bool { return f.Key != "" })
		}
		r.Results[i].Findings = findings
	}
	return r
}

// sagaNamed hides what names an instance: its ID, for which that of its run stands, its key, and the ID that it passes on.
func (s *Service) sagaNamed(p Principal, i *store.SagaIdentity) {
	if s.ShowsKeys(p, "") {
		return
	}
	i.ID = i.Run
	i.Key, i.CorrelationID = s.key(p, "", i.Key, ""), s.key(p, "", i.CorrelationID, "")
}

// findSaga returns the instance that a principal names: by its ID if keys are shown to the principal, else only by its run. Errors:
// store.ErrNoSaga.
func (s *Service) findSaga(ctx context.Context, p Principal, id string) (store.SagaInstance, error) {
	i, err := s.store.ShowSaga(ctx, id)
	if err == nil && i.Run != id && !s.ShowsKeys(p, "") {
		return store.SagaInstance{}, fmt.Errorf("%w: %s", store.ErrNoSaga, id)
	}
	return i, err
}

// KeyPath is the path of the page of a key.
func KeyPath(key string) string { return "/keys/" + escape(key) }
