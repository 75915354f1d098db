package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

func escapePath(segment string) string { return url.PathEscape(segment) }

// call is a call of the API.
type call struct {
	r *http.Request
	p admin.Principal
	v url.Values
}

func (c call) path(name string) string { return c.r.PathValue(name) }

// limit is how many rows the call asks for.
func (c call) limit() int {
	n, err := strconv.Atoi(c.v.Get("limit"))
	if err != nil {
		return 100
	}
	return n
}

// numbered reads the number in the path, and the body.
func (c call) numbered(into any) (n int64, err error) {
	if n, err = number(c.r, "number"); err == nil {
		err = c.body(into)
	}
	return n, err
}

// apiRoute is one operation of the API. Routes and their description are made from the same table.
type apiRoute struct {
	method, path string
	// action is the permission that it needs, does says what it does.
	action admin.Action
	does   string
	// query are its parameters; in and out are values of the types of body and answer, nil for none. A field of a body is required unless
	// its tag has omitempty or omitzero.
	query   []parameter
	in, out any
	call    func(call) (any, error)
}

// answer makes a call if its parameters are what the description says.
func (a apiRoute) answer(c call) (any, error) {
	for _, p := range a.query {
		if err := p.check(c.v); err != nil {
			return nil, err
		}
	}
	out, err := a.call(c)
	return filled(out), err
}

// Bodies of calls.
type (
	reasonBody struct {
		Reason string `json:"reason"`
	}
	noteBody struct {
		Reason string `json:"reason,omitempty"`
	}
	reviewBody struct {
		Action admin.ReviewAction `json:"action"`
		Filter store.DeadFilter   `json:"filter"`
	}
	pauseBody struct {
		Reason string `json:"reason"`
		// ForSeconds is how long the pause lasts, 0 until it is resumed.
		ForSeconds float64 `json:"for_seconds,omitempty"`
	}
	decideBody struct {
		Verb   store.Verb `json:"verb"`
		Reason string     `json:"reason"`
		// MessageID is the blocking message that the caller saw.
		MessageID string `json:"message_id"`
	}
)

// Answers that are no types of the service.
type (
	meAnswer struct {
		Subject string     `json:"subject"`
		Name    string     `json:"name"`
		Role    admin.Role `json:"role"`
		// SagaRoles are the roles in which you answer questions of sagas.
		SagaRoles []string `json:"saga_roles,omitempty"`
	}
	heldAnswer struct {
		Held   store.HeldInfo `json:"held"`
		Queued []admin.Queued `json:"queued"`
	}
	sagaBody struct {
		Operation saga.Verb `json:"operation"`
		// Rev is the revision of the instance on which the decision is based.
		Rev    int64  `json:"rev"`
		Reason string `json:"reason"`
	}
	outcomeAnswer struct {
		Handled bool `json:"handled"`
		// Rev is the revision of the instance with which the operation was carried out.
		Rev int64 `json:"rev,omitempty"`
	}
	reviewAnswer struct {
		admin.Review
		Discarded int `json:"discarded,omitempty"`
	}
	activityAnswer struct {
		Entries []admin.Entry `json:"entries"`
		// Next is the ID to continue before, "" at the end.
		Next string `json:"next,omitempty"`
	}
	sagasAnswer struct {
		Sagas  []store.SagaSummary `json:"sagas"`
		Counts []store.SagaCount   `json:"counts"`
	}
	questionsAnswer struct {
		Questions []admin.SagaQuestion `json:"questions"`
		// Next is the run to continue after, "" at the end.
		Next string `json:"next,omitempty"`
	}
)

// api is the table of routes.
func (h *Handler) api() []apiRoute {
	return slices.Concat(h.statusRoutes(), h.readRoutes(), h.writeRoutes(), h.redriveRoutes(), h.pauseRoutes(), h.sagaRoutes())
}

func (h *Handler) statusRoutes() []apiRoute {
	s := h.service
	return []apiRoute{
		{method: "GET", path: "/me", does: "Who you are, and your role.", out: meAnswer{}, call: func(c call) (any, error) {
			return meAnswer{c.p.Subject, c.p.String(), c.p.Role, c.p.SagaRoles}, nil
		}},
		{method: "GET", path: "/status", action: "Overview", does: "Problems, relays and consumers, with counts and rates.", out: statusAnswer{}, call: func(c call) (any, error) {
			o, err := s.Overview(c.r.Context(), c.p)
			return newStatusAnswer(o), err
		}},
		{method: "GET", path: "/doctor", action: "Doctor", does: "What is wrong, why it matters and what fixes it: of all checks, or of those in check (names or areas, separated by commas). The report is up to ten seconds old.", query: []parameter{{name: "check"}}, out: doctor.Report{}, call: func(c call) (any, error) {
			return s.Doctor(c.r.Context(), c.p, splitNames(c.v.Get("check")))
		}},
		{method: "GET", path: "/relays/{relay}", action: "Relay", does: "One relay or consumer.", out: relayPageAnswer{}, call: func(c call) (any, error) {
			r, err := s.Relay(c.r.Context(), c.p, c.path("relay"))
			return newRelayPageAnswer(r), err
		}},
		{method: "GET", path: "/held", action: "HeldKeys", does: "Held keys, longest held first.", query: []parameter{relayParameter, limitParameter}, out: []store.HeldInfo{}, call: func(c call) (any, error) {
			return s.HeldKeys(c.r.Context(), c.p, c.v.Get("relay"), c.limit())
		}},
		{method: "GET", path: "/held/{relay}/{key}", action: "HeldKey", does: "A held key with its first messages in order, 100 at most.", query: []parameter{limitParameter}, out: heldAnswer{}, call: func(c call) (any, error) {
			var out heldAnswer
			var err error
			out.Held, out.Queued, err = s.HeldKey(c.r.Context(), c.p, c.path("relay"), c.path("key"), c.limit())
			return out, err
		}},
	}
}

func (h *Handler) readRoutes() []apiRoute {
	s := h.service
	return []apiRoute{
		{method: "GET", path: "/dead", action: "DeadLetters", does: "Dead letters without payloads, oldest first, and how many match. At most 50,000 are looked at; if complete is false, more may match, and next continues.", query: append(slices.Clone(deadParameters), parameter{name: "after", least: 0, most: math.MaxInt64}, limitParameter), out: admin.DeadPage{}, call: func(c call) (any, error) {
			after, _ := strconv.ParseInt(c.v.Get("after"), 10, 64)
			return s.DeadLetters(c.r.Context(), c.p, deadFilter(c.v), max(0, after), c.limit())
		}},
		{method: "GET", path: "/dead/causes", action: "Causes", does: "Open dead letters by relay, type and cause, most frequent first: of the newest 50,000. If complete is false, there are more.", query: append(slices.Clone(deadParameters), limitParameter), out: store.FoundCauses{}, call: func(c call) (any, error) {
			return s.Causes(c.r.Context(), c.p, deadFilter(c.v), c.limit())
		}},
		{method: "GET", path: "/dead/{number}", action: "DeadLetter", does: "A dead letter, with what rules show of its payload.", out: admin.Dead{}, call: func(c call) (any, error) {
			n, err := number(c.r, "number")
			if err != nil {
				return nil, err
			}
			d, _, err := s.DeadLetter(c.r.Context(), c.p, n)
			return d, err
		}},
		{method: "GET", path: "/messages/{id}", action: "Message", does: "Where a message is, why, and what happens next.", out: inspect.Explanation{}, call: func(c call) (any, error) {
			return s.Message(c.r.Context(), c.p, c.path("id"))
		}},
		{method: "GET", path: "/messages/{id}/causation", action: "Causation", does: "What caused a message and what it caused, in all configured stores. If the answer is not complete, it says why; search=thorough reads more of the logs.", query: causationParameters, out: inspect.Causation{}, call: h.apiCausation},
		{method: "GET", path: "/keys/{key}", action: "Key", does: "What blocks a key at each relay and consumer.", out: inspect.Explanation{}, call: func(c call) (any, error) {
			return s.Key(c.r.Context(), c.p, c.path("key"))
		}},
		{method: "GET", path: "/redrives", action: "Redrives", does: "Redrives, newest first.", query: []parameter{limitParameter}, out: []store.Redrive{}, call: func(c call) (any, error) {
			return s.Redrives(c.r.Context(), c.p, c.limit())
		}},
		{method: "GET", path: "/redrives/{number}", action: "Redrive", does: "A redrive, and what became of its messages.", out: store.Redrive{}, call: func(c call) (any, error) {
			n, err := number(c.r, "number")
			if err != nil {
				return nil, err
			}
			return s.Redrive(c.r.Context(), c.p, n)
		}},
		{method: "GET", path: "/reviews/{id}", action: "ShowReview", does: "A review.", out: admin.Review{}, call: func(c call) (any, error) {
			return s.ShowReview(c.r.Context(), c.p, c.path("id"))
		}},
		{method: "GET", path: "/sagas", action: "Sagas", does: "Sagas in the order of their start.", query: []parameter{{name: "saga"}, {name: "status", words: wordsOf(store.SagaStatuses)}, {name: "after"}, limitParameter}, out: sagasAnswer{}, call: h.apiSagas},
		{method: "GET", path: "/sagas/{id}", action: "Saga", does: "A saga with its history, without its data.", out: admin.Saga{}, call: func(c call) (any, error) {
			return s.Saga(c.r.Context(), c.p, c.path("id"))
		}},
		// Not below /sagas, where an instance can have any ID.
		{method: "GET", path: "/questions", action: "SagaQuestions", does: "Questions of sagas that wait for somebody's answer, by the start of their instances: of up to limit instances. The text of a question is shown to those who may answer it, and to those who see causes of all types.", query: []parameter{{name: "saga"}, {name: "after"}, limitParameter}, out: questionsAnswer{}, call: func(c call) (any, error) {
			var out questionsAnswer
			var err error
			out.Questions, out.Next, err = s.SagaQuestions(c.r.Context(), c.p, c.v.Get("saga"), c.v.Get("after"), c.limit())
			return out, err
		}},
		{method: "GET", path: "/activity", action: "Activity", does: "Who did what, newest first: an admin sees everybody's actions.", query: []parameter{{name: "before"}, limitParameter}, out: activityAnswer{}, call: func(c call) (any, error) {
			var out activityAnswer
			var err error
			out.Entries, out.Next, err = s.Activity(c.r.Context(), c.p, c.v.Get("before"), c.limit())
			return out, err
		}},
	}
}

func (h *Handler) apiSagas(c call) (any, error) {
	f := store.SagaFilter{Saga: c.v.Get("saga")}
	if status := c.v.Get("status"); status != "" {
		f.Status = []store.SagaStatus{store.SagaStatus(status)}
	}
	var out sagasAnswer
	var err error
	out.Sagas, out.Counts, err = h.service.Sagas(c.r.Context(), c.p, f, c.v.Get("after"), c.limit())
	return out, err
}

func (h *Handler) writeRoutes() []apiRoute {
	s := h.service
	return []apiRoute{
		{method: "POST", path: "/reviews", action: "StartReview", does: "Prepares a redrive or discard of the open dead letters that match a filter, and fixes them.", in: reviewBody{}, out: admin.Review{}, call: func(c call) (any, error) {
			var in reviewBody
			if err := c.body(&in); err != nil {
				return nil, err
			}
			return s.StartReview(c.r.Context(), c.p, in.Action, in.Filter)
		}},
		{method: "POST", path: "/reviews/{id}/execute", action: "ExecuteReview", does: "Carries out a review, once; names its digest.", in: admin.Execution{}, out: reviewAnswer{}, call: func(c call) (any, error) {
			var in admin.Execution
			if err := c.body(&in); err != nil {
				return nil, err
			}
			var out reviewAnswer
			var err error
			out.Review, out.Discarded, err = s.ExecuteReview(c.r.Context(), c.p, c.path("id"), in)
			return out, err
		}},
		{method: "POST", path: "/dead/{number}/redrive", action: "RedriveDead", does: "Sends one dead letter back.", in: noteBody{}, out: store.Redrive{}, call: func(c call) (any, error) {
			var in noteBody
			n, err := c.numbered(&in)
			if err != nil {
				return nil, err
			}
			return s.RedriveDead(c.r.Context(), c.p, n, in.Reason)
		}},
		{method: "POST", path: "/dead/{number}/discard", action: "DiscardDead", does: "Drops one dead letter; it stays on record.", in: reasonBody{}, call: func(c call) (any, error) {
			var in reasonBody
			n, err := c.numbered(&in)
			if err != nil {
				return nil, err
			}
			return nil, s.DiscardDead(c.r.Context(), c.p, n, in.Reason)
		}},
		{method: "POST", path: "/held/{relay}/{key}/decide", action: "Decide", does: "Decides about a held key. State open in the answer: it is recorded and not applied yet.", in: decideBody{}, out: store.Decision{}, call: func(c call) (any, error) {
			var in decideBody
			if err := c.body(&in); err != nil {
				return nil, err
			}
			d, err := s.Decide(c.r.Context(), c.p, store.Decision{
				Relay: c.path("relay"), Key: c.path("key"), MessageID: in.MessageID, Verb: in.Verb, Reason: in.Reason,
			})
			if errors.Is(err, held.ErrNotApplied) {
				d.State, err = store.DecisionOpen, nil
			}
			return d, err
		}},
	}
}

func (h *Handler) redriveRoutes() []apiRoute {
	s := h.service
	return []apiRoute{
		{method: "POST", path: "/redrives/{number}/cancel", action: "CancelRedrive", does: "Ends a running redrive; what it has sent stays sent.", in: noteBody{}, call: onRedrive(s.CancelRedrive)},
		{method: "POST", path: "/redrives/{number}/continue", action: "ContinueRedrive", does: "Lets a redrive go on that has stopped.", in: noteBody{}, call: onRedrive(s.ContinueRedrive)},
	}
}

func (h *Handler) pauseRoutes() []apiRoute {
	s := h.service
	return []apiRoute{
		{method: "POST", path: "/relays/{relay}/pause", action: "PauseRelay", does: "Pauses a relay or consumer: its processes start nothing.", in: pauseBody{}, out: store.Pause{}, call: func(c call) (any, error) {
			var in pauseBody
			if err := c.body(&in); err != nil {
				return nil, err
			}
			last := time.Duration(min(max(in.ForSeconds, -1), 2*pause.Longest.Seconds()) * float64(time.Second))
			return s.PauseRelay(c.r.Context(), c.p, c.path("relay"), in.Reason, last)
		}},
		{method: "POST", path: "/relays/{relay}/resume", action: "ResumeRelay", does: "Ends the pause of a relay or consumer.", in: noteBody{}, out: store.Pause{}, call: func(c call) (any, error) {
			var in noteBody
			if err := c.body(&in); err != nil {
				return nil, err
			}
			return s.ResumeRelay(c.r.Context(), c.p, c.path("relay"), in.Reason)
		}},
	}
}

func (h *Handler) sagaRoutes() []apiRoute {
	return []apiRoute{
		{method: "POST", path: "/sagas/{id}/operate", action: "OperateSaga", does: "Asks the engine of a saga for an operation, and waits a moment for its decision. Without handled in the answer, the engine decides later.", in: sagaBody{}, out: outcomeAnswer{}, call: func(c call) (any, error) {
			var in sagaBody
			if err := c.body(&in); err != nil {
				return nil, err
			}
			out, err := h.service.OperateSaga(c.r.Context(), c.p, c.path("id"), saga.Operation{Verb: in.Operation, Rev: in.Rev, Reason: in.Reason})
			return outcomeAnswer{out.Handled, out.Rev}, err
		}},
		{method: "POST", path: "/sagas/{id}/answer", action: "AnswerSaga", does: "Answers a question of a saga, and waits a moment for the decision of its engine: of two answers, the first counts. Without handled in the answer, the engine decides later. It needs one of the roles that the question names; if it names none, the operator role.", in: admin.SagaAnswer{}, out: outcomeAnswer{}, call: func(c call) (any, error) {
			var in admin.SagaAnswer
			if err := c.body(&in); err != nil {
				return nil, err
			}
			out, err := h.service.AnswerSaga(c.r.Context(), c.p, c.path("id"), in)
			return outcomeAnswer{out.Handled, out.Rev}, err
		}},
	}
}

// onRedrive is the call of an action on a redrive.
func onRedrive(act func(context.Context, admin.Principal, int64, string) error) func(call) (any, error) {
	return func(c call) (any, error) {
		var in noteBody
		n, err := c.numbered(&in)
		if err != nil {
			return nil, err
		}
		return nil, act(c.r.Context(), c.p, n, in.Reason)
	}
}

// apiHandler answers a call. Programs send an access token; a browser's session works too, from pages of this server only.
func (h *Handler) apiHandler(route apiRoute) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := h.principal(r)
		if err != nil {
			if h.cfg.Authorizer != nil {
				err = errSignedOut
			}
			h.failWith(w, r, err)
			return
		}
		out, err := route.answer(call{r, p, r.URL.Query()})
		if err != nil {
			h.failWith(w, r, err)
			return
		}
		if out == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", out)
	}
}
