package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// shown writes segments as a page does.
func shown(segments []admin.Segment) string {
	var b strings.Builder
	for _, s := range segments {
		if s.Hidden {
			b.WriteString("[hidden]")
		}
		b.WriteString(s.Text)
	}
	return b.String()
}

func TestPayloadIsHiddenUnlessARuleShowsIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rules []admin.Rule
		want  string
	}{
		"no rule":        {nil, "[hidden]"},
		"another type":   {[]admin.Rule{{Type: "payment.*", All: true}}, "[hidden]"},
		"an empty rule":  {[]admin.Rule{{Type: "order.*"}}, "[hidden]"},
		"one value":      {[]admin.Rule{{Type: "order.*", Show: []string{"/NUMBER"}}}, `{"number":42,"card":[hidden],"items":[hidden]}`},
		"in lists":       {[]admin.Rule{{Type: "*", Show: []string{"/items/*/sku"}}}, `{"number":[hidden],"card":[hidden],"items":[{"sku":"A","note":[hidden]}]}`},
		"below a scalar": {[]admin.Rule{{Type: "*", Show: []string{"/number/x"}}}, `{"number":[hidden],"card":[hidden],"items":[hidden]}`},
		"all but":        {[]admin.Rule{{Type: "*", All: true, Hide: []string{"/card", "/items/*/Note"}}}, `{"number":42,"card":[hidden],"items":[{"sku":"A","note":[hidden]}]}`},
	} {
		_, service := withDead(t, 1, tt.rules...)
		d, _, err := service.DeadLetter(t.Context(), operator, 1)
		must(t, err)
		got := strings.Join(strings.Fields(shown(d.Payload)), "")
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if strings.Contains(got, secret) {
			t.Errorf("%s: the secret is shown", name)
		}
	}
}

func TestDuplicateNamesAreAllHidden(t *testing.T) {
	t.Parallel()
	rule := admin.Rule{Type: "*", All: true, Hide: []string{"/card"}}
	for payload, want := range map[string]string{
		`{"card":1,"a":2,"CARD":3,"card":4}`: `{"card":[hidden],"a":2,"CARD":[hidden],"card":[hidden]}`,
		`{"a":"<b>\u202e"}`:                  `{"a":"<b>` + "\u202e" + `"}`,
		`{"a":1} {"card":2}`:                 "[hidden]",
		`{"a":`:                              "[hidden]",
		strings.Repeat("[", 80) + strings.Repeat("]", 80): "[hidden]",
		`12345678901234567890.10`:                         "12345678901234567890.10",
	} {
		got := strings.Join(strings.Fields(shown(admin.Redacted(rule, []byte(payload)))), "")
		if got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
}

// TestNothingHiddenIsReturned: whatever a viewer and an operator without a rule can ask for, the secret is in no answer.
func TestNothingHiddenIsReturned(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 3)
	ctx := t.Context()
	// A redrive of the command line, with a filter by the text of a cause, whose last step has failed.
	dead := deadletter.New(s)
	redrive, err := dead.StartRedrive(ctx, deadletter.Plan{Filter: store.DeadFilter{Cause: "card " + secret}, By: "ops"})
	must(t, err)
	_, err = dead.FailRedrive(ctx, redrive.ID, 0, "duplicate key: card "+secret)
	must(t, err)
	for _, p := range []admin.Principal{viewer, operator} {
		var answers []any
		add := func(values ...any) { answers = append(answers, values...) }
		o, err := service.Overview(ctx, p)
		add(o, err)
		c, err := service.Causes(ctx, p, store.DeadFilter{}, 10)
		add(c, err)
		l, err := service.DeadLetters(ctx, p, store.DeadFilter{}, 0, 10)
		add(l, err)
		d, edits, err := service.DeadLetter(ctx, p, 1)
		add(d, edits, err)
		m, err := service.Message(ctx, p, d.Message.ID)
		add(m, err)
		k, err := service.Key(ctx, p, d.Message.Key)
		add(k, err)
		all, err := service.Redrives(ctx, p, 10)
		add(all, err)
		one, err := service.Redrive(ctx, p, redrive.ID)
		add(one, err)
		if len(o.Running) != 1 || len(all) != 1 {
			t.Errorf("running redrives: %+v, all: %+v", o.Running, all)
		}
		if p.Role == admin.Operator {
			r, err := service.StartReview(ctx, p, admin.ReviewRedrive, store.DeadFilter{})
			add(r, err)
			text, _, err := service.Content(ctx, p, 1)
			add(text, fmt.Sprint(err))
		}
		for _, a := range answers {
			text, err := json.Marshal(a)
			must(t, err)
			if strings.Contains(string(text), secret) || strings.Contains(string(text), "NDExMS0x") {
				t.Errorf("%s gets the secret: %s", p.Role, text)
			}
		}
		// A filter by text could find out the secret by guessing.
		found, err := service.DeadLetters(ctx, p, store.DeadFilter{Cause: secret[:4]}, 0, 10)
		if must(t, err); found.Total != 0 {
			t.Errorf("%s finds causes by the text of the secret", p.Role)
		}
	}
}

// withDown publishes a message to a relay whose destination is down.
func withDown(t *testing.T, s *memory.Store, relay, cause string) *postrider.Message {
	t.Helper()
	ctx := t.Context()
	process := store.Owner{ID: "a", Host: "host", Version: "v1", Topics: []string{"*"}}
	process.Destination = store.Destination{State: store.DestinationDown, For: time.Minute, NextTry: 3 * time.Second, Error: cause}
	_, err := s.Heartbeat(ctx, relay, process, time.Hour)
	must(t, err)
	m := &postrider.Message{Type: "order.placed", Topic: "orders", Key: "order/down", Payload: []byte("{}")}
	m.FillDefaults("test", time.Now())
	claim := store.LeaseClaim{Partition: postrider.PartitionOf(m.Key, m.ID, memory.DefaultPartitions), Token: store.NewToken()}
	_, err = s.Acquire(ctx, relay, process, store.AcquireRequest{TTL: time.Hour, Claims: []store.LeaseClaim{claim}})
	must(t, err)
	tx, err := s.Begin(ctx)
	must(t, err)
	must(t, s.Insert(ctx, tx, []*postrider.Message{m}))
	must(t, s.Commit(ctx, tx))
	return m
}

func placeOf(t *testing.T, e inspect.Explanation, relay string) inspect.Place {
	t.Helper()
	i := slices.IndexFunc(e.Places, func(p inspect.Place) bool { return p.Name == relay })
	if i < 0 {
		t.Fatalf("nothing about %s in %+v", relay, e)
	}
	return e.Places[i]
}

// TestNoAnswerOfADestinationIsReturned: without a rule, nobody gets what a destination that is down has answered, which quotes a payload.
func TestNoAnswerOfADestinationIsReturned(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	ctx := t.Context()
	m := withDown(t, s, "to-hook", "webhook answered 503: card "+secret)
	agent := admin.Principal{Issuer: "test", Subject: "vera", Role: admin.Viewer, Via: admin.ViaAgent}
	for _, p := range []admin.Principal{viewer, agent, operator} {
		message, err := service.Message(ctx, p, m.ID)
		must(t, err)
		key, err := service.Key(ctx, p, admin.HiddenKey(m.ID))
		must(t, err)
		relay, err := service.Relay(ctx, p, "to-hook")
		must(t, err)
		overview, err := service.Overview(ctx, p)
		must(t, err)
		causation, err := service.Causation(ctx, p, m.ID, inspect.CausationSearch{})
		must(t, err)
		doctor, err := service.Doctor(ctx, p, nil)
		must(t, err)
		for _, answer := range []any{message, key, relay, overview, causation, doctor} {
			text, err := json.Marshal(answer)
			must(t, err)
			if strings.Contains(string(text), secret) {
				t.Errorf("%s gets the secret: %s", p, text)
			}
		}
		for _, e := range []inspect.Explanation{message, key} {
			at := placeOf(t, e, "to-hook")
			if at.Next.Code != inspect.NextAnswer || at.Down == nil || at.Down.Cause != "webhook answered 503: card #" {
				t.Errorf("%s: %+v, down %+v", p, at.Next, at.Down)
			}
		}
		if relay.Problem == nil || relay.Problem.Cause != "webhook answered 503: card #" {
			t.Errorf("%s: the problem of the relay is %+v", p, relay.Problem)
		}
	}
}

// TestOutageIsShownByRule: a rule that shows the causes of all types shows why a destination is down.
func TestOutageIsShownByRule(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0, admin.Rule{Type: "*", Causes: true})
	m := withDown(t, s, "to-hook", "card "+secret)
	e, err := service.Message(t.Context(), operator, m.ID)
	must(t, err)
	if at := placeOf(t, e, "to-hook"); at.Down == nil || at.Down.Cause != "card "+secret {
		t.Errorf("down %+v", at.Down)
	}
}

func TestEditKeepsHiddenValues(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 1, admin.Rule{Type: "order.*", Show: []string{"/number", "/items/*/sku"}})
	ctx := t.Context()
	text, edits, err := service.Content(ctx, operator, 1)
	must(t, err)
	if strings.Contains(text, secret) || !strings.Contains(text, `"hidden value of /card"`) {
		t.Fatalf("for editing: %s", text)
	}
	moved := strings.Replace(text, `"number": 42`, `"number": "hidden value of /card"`, 1)
	if err := service.EditDead(ctx, operator, 1, moved, edits, "look"); !errors.Is(err, admin.ErrMarker) {
		t.Errorf("a marker at another place: %v", err)
	}
	if err := service.EditDead(ctx, operator, 1, text+"x", edits, "typo"); err == nil {
		t.Error("invalid JSON is accepted")
	}
	must(t, service.EditDead(ctx, operator, 1, strings.Replace(text, "42", "43", 1), edits, "right number"))
	if err := service.EditDead(ctx, operator, 1, text, edits, "old"); !errors.Is(err, deadletter.ErrEdited) {
		t.Errorf("an edit of an older version: %v", err)
	}
	l, err := deadletter.New(s).ShowDead(ctx, 1)
	must(t, err)
	want := fmt.Sprintf(`{"number": 43, "card": {"no": "%s"}, "items": [{"sku": "A", "note": "%[1]s"}]}`, secret)
	if string(l.Message.Payload) != want {
		t.Errorf("payload %s\nwant    %s", l.Message.Payload, want)
	}
}

// TestMarkersKeepTheirPlaces: names with slashes give no two places the same marker.
func TestMarkersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule                   admin.Rule
		payload, forged, shown string
	}{
		"a name with a slash":      {admin.Rule{All: true, Hide: []string{"/a~1b"}}, `{"a/b":"s3cret"}`, `{"a":{"b":"hidden value of /a/b"}}`, `{"a/b":"hidden value of /a~1b"}`},
		"the forged one, escaped":  {admin.Rule{All: true, Hide: []string{"/a~1b"}}, `{"a/b":"s3cret"}`, `{"a":{"b":"hidden value of /a~1b"}}`, ""},
		"a name with a tilde":      {admin.Rule{All: true, Hide: []string{"/a~01b"}}, `{"a~1b":"s3cret"}`, `{"a/b":"hidden value of /a~1b"}`, `{"a~1b":"hidden value of /a~01b"}`},
		"the whole payload":        {admin.Rule{Show: []string{"/*"}}, `"s3cret"`, `{"":"hidden value of /"}`, `"hidden value of the whole payload"`},
		"the whole in another one": {admin.Rule{Show: []string{"/*"}}, `"s3cret"`, `{"":"hidden value of the whole payload"}`, ""},
	} {
		text, err := admin.ForEditing(tt.rule, []byte(tt.payload))
		if must(t, err); tt.shown != "" && text != tt.shown {
			t.Errorf("%s: for editing: %s, want %s", name, text, tt.shown)
		}
		if got, err := admin.AfterEdit(tt.rule, []byte(tt.payload), tt.forged); !errors.Is(err, admin.ErrMarker) {
			t.Errorf("%s: an edit moves the value: %s, %v", name, got, err)
		}
		if got, err := admin.AfterEdit(tt.rule, []byte(tt.payload), text); err != nil || string(got) != tt.payload {
			t.Errorf("%s: unchanged: %s, %v", name, got, err)
		}
	}
}

// TestCausesOfUnknownTypes: where the type of a message is not known, its cause is shown, and can be searched, only if rules show the
// causes of all types.
func TestCausesOfUnknownTypes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rules []admin.Rule
		shown bool
	}{
		"a rule for all":          {[]admin.Rule{{Type: "*", Causes: true}}, true},
		"a hidden type before it": {[]admin.Rule{{Type: "order.*"}, {Type: "*", Causes: true}}, false},
		"a shown type before it":  {[]admin.Rule{{Type: "payment.*", Causes: true}, {Type: "*", Causes: true}}, true},
		"a hidden type after it":  {[]admin.Rule{{Type: "*", Causes: true}, {Type: "order.*"}}, true},
		"no rule for all":         {[]admin.Rule{{Type: "payment.*", Causes: true}}, false},
		"a rule for all without":  {[]admin.Rule{{Type: "*"}, {Type: "*", Causes: true}}, false},
	} {
		_, service := withDead(t, 1, tt.rules...)
		found, err := service.DeadLetters(t.Context(), operator, store.DeadFilter{Cause: secret[:4]}, 0, 10)
		if must(t, err); (found.Total == 1) != tt.shown {
			t.Errorf("%s: a search by text finds %+v", name, found)
		}
		d, _, err := service.DeadLetter(t.Context(), operator, 1)
		must(t, err)
		e, err := service.Key(t.Context(), operator, d.Message.Key)
		must(t, err)
		text, err := json.Marshal(e)
		if must(t, err); !tt.shown && strings.Contains(string(text), secret) {
			t.Errorf("%s: the key's page has the cause: %s", name, text)
		}
		if found, err := service.DeadLetters(t.Context(), viewer, store.DeadFilter{Cause: secret[:4]}, 0, 10); err != nil || found.Total != 0 {
			t.Errorf("%s: a viewer finds %+v, %v", name, found, err)
		}
	}
}

// TestCausesOfOtherTypes: the rule of a message does not show the cause of another message that blocks its key, and no rule matches the
// name of a saga, whose texts quote messages of several types.
func TestCausesOfOtherTypes(t *testing.T) {
	t.Parallel()
	cause := "card " + secret + " refused"
	service := admin.New(sagas{memory.New(memory.Config{}), cause}, admin.Config{Show: []admin.Rule{{Type: "order.*", Causes: true}}})
	for state, shown := range map[inspect.State]bool{inspect.Blocking: true, inspect.Queued: false, inspect.Dead: false} {
		e := inspect.Explanation{Places: []inspect.Place{{State: state, HeldKey: &inspect.HeldKey{Cause: cause}}}}
		got := admin.Explained(service, operator, "order.placed", e).Places[0].HeldKey.Cause
		if strings.Contains(got, secret) != shown {
			t.Errorf("%s: the blocking message's cause is %q", state, got)
		}
	}
	list, _, err := service.Sagas(t.Context(), operator, store.SagaFilter{}, "", 10)
	must(t, err)
	one, err := service.Saga(t.Context(), operator, "r")
	must(t, err)
	text, err := json.Marshal([]any{list, one})
	if must(t, err); strings.Contains(string(text), secret) || !strings.Contains(string(text), "card # refused") || strings.Contains(string(text), "s-1") {
		t.Errorf("a saga: %s", text)
	}
}

// sagas is a store with a stuck saga, whose texts have a cause.
type sagas struct {
	*memory.Store
	cause string
}

func (s sagas) ListSagas(context.Context, store.SagaFilter, string, int) ([]store.SagaSummary, error) {
	in, err := s.ShowSaga(context.Background(), "s-1")
	return []store.SagaSummary{{SagaIdentity: in.SagaIdentity, SagaCondition: in.SagaCondition}}, err
}

func (s sagas) ShowSaga(context.Context, string) (store.SagaInstance, error) {
	return store.SagaInstance{
		SagaIdentity:  store.SagaIdentity{Run: "r", ID: "s-1", Saga: "order.fulfilment"},
		SagaCondition: store.SagaCondition{Status: store.SagaStuck, Detail: s.cause},
		SagaBody:      store.SagaBody{State: []byte("{}")},
	}, nil
}

func (s sagas) SagaHistory(context.Context, string, int64, int) ([]store.SagaTransition, error) {
	return []store.SagaTransition{{Note: s.cause, Entries: []store.SagaEntry{{Text: s.cause}}}}, nil
}

// TestPatternsOfTypes: * stands for slashes too, and a malformed pattern hides.
func TestPatternsOfTypes(t *testing.T) {
	t.Parallel()
	shows := func(kind string, patterns ...string) bool {
		var rules []admin.Rule
		for _, p := range patterns {
			rules = append(rules, admin.Rule{Type: p, All: true})
		}
		return admin.HasRule(admin.New(nil, admin.Config{Show: rules}), kind)
	}
	for _, pattern := range []string{"com/acme/card.*", "com/*", "com.acme.*", "*"} {
		if !shows("com/acme/card.charged", pattern) {
			t.Errorf("%s does not match com/acme/card.charged", pattern)
		}
	}
	if shows("com/acme/card.charged", "com/other/*") {
		t.Error("com/other/* matches com/acme/card.charged")
	}
	if shows("order.placed", "order.[placed", "*") {
		t.Error("what a malformed rule may be meant to hide is shown by the next rule")
	}
	for pattern, valid := range map[string]bool{"order.*": true, "order.[a-z]*": true, "order.[": false} {
		if err := (admin.Rule{Type: pattern}).Validate(); errors.Is(err, path.ErrBadPattern) == valid {
			t.Errorf("type %s: %v", pattern, err)
		}
		if err := (admin.Rule{Headers: []string{pattern}}).Validate(); errors.Is(err, path.ErrBadPattern) == valid {
			t.Errorf("header %s: %v", pattern, err)
		}
	}
}
