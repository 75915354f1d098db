package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// SagaQuestion is a question of a saga that waits for its answer, as a principal may see it.
type SagaQuestion struct {
	saga.Question
	// Hidden: the text of the question is not shown to the principal.
	Hidden bool `json:"hidden,omitempty"`
	// MayAnswer: the principal may answer here.
	MayAnswer bool `json:"may_answer"`
}

// SagaAnswer is an answer to a question of a saga. All fields are required.
type SagaAnswer struct {
	Step   string `json:"step"`
	Option string `json:"option"`
	// Rev is the revision of the instance that was shown.
	Rev    int64  `json:"rev"`
	Reason string `json:"reason"`
}

// SagaQuestions returns the questions that up to limit instances of a saga ask, "" for all sagas, in the order in which the instances
// started. after is the run after which to continue; next is the one to continue after, "" at the end.
func (s *Service) SagaQuestions(ctx context.Context, p Principal, name, after string, limit int) (out []SagaQuestion, next string, err error) {
	if err := s.allow(ctx, p, "SagaQuestions", ""); err != nil {
		return nil, "", err
	}
	found, next, err := saga.NewOperator(s.store).Questions(ctx, name, after, limit)
	return s.questions(p, found), next, err
}

// questions are those that the principal sees. The text of a question quotes the data of its saga, as causes do, and whoever may answer it
// has to read it.
func (s *Service) questions(p Principal, found []saga.Question) (out []SagaQuestion) {
	for _, q := range found {
		_, err := p.answers(q)
		one := SagaQuestion{Question: q, MayAnswer: err == nil && s.cfg.Publish != nil}
		if one.Hidden = err != nil && !s.seesCauses(p, anyType); one.Hidden {
			one.Text = ""
		}
		if !s.ShowsKeys(p, "") {
			one.ID = q.Run
		}
		out = append(out, one)
	}
	return out
}

// answers returns the role in which the principal answers a question, "" for one that names no roles. No role of this service stands for
// one of a question.
func (p Principal) answers(q saga.Question) (role string, err error) {
	switch {
	case p.Via == ViaAgent:
		return "", ErrAgent
	case len(q.Roles) == 0 && !p.Role.May("OperateSaga"):
		return "", &ForbiddenError{Action: "AnswerSaga", Role: Action("OperateSaga").Needs()}
	case len(q.Roles) == 0:
		return "", nil
	}
	for _, role := range q.Roles {
		if slices.Contains(p.SagaRoles, role) {
			return role, nil
		}
	}
	return "", &ForbiddenError{Action: "AnswerSaga", SagaRoles: q.Roles}
}

// AnswerSaga answers a question of an instance: it asks the engine, after the answer is on record, and waits a moment for its decision; the
// outcome says whether there is one. The principal needs one of the question's roles. Of two people, the first counts. Errors: ErrForbidden,
// ErrInput, ErrReason, ErrSagaRefused, ErrNotAsked, ErrCannotPublish, store.ErrNoSaga.
func (s *Service) AnswerSaga(ctx context.Context, p Principal, id string, a SagaAnswer) (out saga.Outcome, err error) {
	c := Change{Action: "AnswerSaga", On: Answered(id, a.Step, a.Option), Path: "/sagas/" + escape(id), Reason: a.Reason, Key: id}
	if err := s.allowChange(ctx, p, c); err != nil {
		return out, err
	}
	switch {
	case s.cfg.Publish == nil:
		return out, ErrCannotPublish
	case a.Rev <= 0:
		return out, wrongInput("name the revision of the instance that was shown")
	}
	if err := required(&a.Reason); err != nil {
		return out, err
	}
	i, err := s.findSaga(ctx, p, id)
	if err != nil {
		return out, err
	}
	if i.Run == id {
		c.Key = ""
	}
	if c.Role, err = p.answersStep(i, a); err != nil {
		if errors.Is(err, ErrForbidden) || errors.Is(err, ErrSagaRefused) {
			s.refuse(ctx, p, c, err)
		}
		return out, err
	}
	o := saga.Operation{
		Verb: saga.AnswerAsk, Step: a.Step, Option: a.Option, Rev: a.Rev, Role: c.Role, Actor: clean(p.String()), Reason: clean(a.Reason),
	}
	err = s.Act(ctx, p, c, func(db held.Database) (err error) {
		out, err = s.askEngine(ctx, db, id, o)
		return err
	})
	return out, err
}

// Answered is how the audit names an answer to a question of an instance.
func Answered(id, step, option string) string {
	return fmt.Sprintf("%s of saga %s: %s", step, id, option)
}

// answersStep returns the role in which the principal answers a question of an instance. The engine refuses the answer if the instance is
// then at another revision than this one, so the roles are those of the question that is answered.
func (p Principal) answersStep(i store.SagaInstance, a SagaAnswer) (role string, err error) {
	if i.Rev != a.Rev {
		return "", fmt.Errorf("%w: the instance is at revision %d, not %d; look again and decide on that", ErrSagaRefused, i.Rev, a.Rev)
	}
	open, err := saga.Questions(i)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(open, func(q saga.Question) bool { return q.Step == a.Step })
	if at < 0 {
		return "", fmt.Errorf("%w: step %q asks nothing now", ErrSagaRefused, a.Step)
	}
	return p.answers(open[at])
}

// ValidSagaRole reports whether a text can be a saga role.
func ValidSagaRole(role string) bool {
	return strings.TrimSpace(role) != "" && len(role) <= MaxSagaRoleBytes && clean(role) == role
}

// MaxSagaRoleBytes is the size of the longest saga role.
const MaxSagaRoleBytes = 256
