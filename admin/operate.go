package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// Errors of operations on sagas.
var (
	// ErrSagaRefused: the engine refuses the operation, or would refuse it.
	ErrSagaRefused = errors.New("the operation is refused")
	// ErrNotAsked: the message to the engine was not published.
	ErrNotAsked = errors.New("the engine was not asked")
	// ErrCannotPublish: Config.Publish is nil.
	ErrCannotPublish = errors.New("this administration cannot ask engines of sagas; use postrider saga")
)

// SagaPlan is what an operation on an instance of a saga would do now.
type SagaPlan struct {
	Verb saga.Verb `json:"verb"`
	saga.Plan
}

// SagaVerbs need nothing but a reason. The others, which are about a step or change data, are those of the command line.
var SagaVerbs = []saga.Verb{saga.Retry, saga.Compensate, saga.Pause, saga.Resume, saga.Complete, saga.Abandon}

// SagaPlans returns the operations on an instance that the engine would not refuse now. Errors: store.ErrNoSaga, saga.ErrNoDefinition,
// ErrCannotPublish.
func (s *Service) SagaPlans(ctx context.Context, p Principal, id string) (out []SagaPlan, err error) {
	if err := s.allowChange(ctx, p, Change{Action: "SagaPlans", On: id, Key: id}); err != nil {
		return nil, err
	}
	if s.cfg.Publish == nil {
		return nil, ErrCannotPublish
	}
	if _, err := s.findSaga(ctx, p, id); err != nil {
		return nil, err
	}
	operator := saga.NewOperator(s.store)
	for _, verb := range SagaVerbs {
		plan, err := operator.Plan(ctx, id, saga.Operation{Verb: verb, Actor: clean(p.String()), Reason: "plan"})
		if err != nil {
			return nil, err
		}
		if plan.Refused == "" {
			out = append(out, SagaPlan{verb, plan})
		}
	}
	return out, nil
}

// noReason is the reason of a retry for which somebody gave none: engines record one with each operation.
const noReason = "no reason given"

// OperateSaga asks the engine of an instance for an operation, which is on record first, and waits a moment for its decision; the outcome
// says whether there is one. The operation names the revision that was shown, and is refused if the instance has moved on. All but retries
// need a reason. Errors: ErrInput, ErrReason, ErrSagaRefused, ErrNotAsked, ErrCannotPublish, store.ErrNoSaga.
func (s *Service) OperateSaga(ctx context.Context, p Principal, id string, o saga.Operation) (out saga.Outcome, err error) {
	c := Change{Action: "OperateSaga", On: fmt.Sprintf("%s of saga %s", o.Verb, id), Path: "/sagas/" + escape(id), Reason: o.Reason, Key: id}
	if err := s.allowChange(ctx, p, c); err != nil {
		return out, err
	}
	switch {
	case s.cfg.Publish == nil:
		return out, ErrCannotPublish
	case !slices.Contains(SagaVerbs, o.Verb):
		return out, wrongInput("there is no operation %q here", o.Verb)
	case o.Rev <= 0:
		return out, wrongInput("name the revision of the instance that was shown")
	}
	if err := required(&o.Reason); err != nil && o.Verb != saga.Retry {
		return out, err
	} else if err != nil {
		o.Reason = noReason
	}
	i, err := s.findSaga(ctx, p, id)
	if err != nil {
		return out, err
	}
	if i.Run == id {
		c.Key = ""
	}
	o.Actor, o.Reason = clean(p.String()), clean(o.Reason)
	err = s.Act(ctx, p, c, func(db held.Database) (err error) {
		out, err = s.askEngine(ctx, db, id, o)
		return err
	})
	return out, err
}

// askEngine records that an operation is asked for, asks for it, and waits a moment for the decision.
func (s *Service) askEngine(ctx context.Context, db held.Database, id string, o saga.Operation) (out saga.Outcome, err error) {
	operator := saga.NewOperator(s.store)
	switch plan, err := operator.Plan(ctx, id, o); {
	case errors.Is(err, saga.ErrNoDefinition): // the engine decides
	case err != nil:
		return out, err
	case plan.Refused != "":
		return out, fmt.Errorf("%w: %s", ErrSagaRefused, plan.Refused)
	}
	m, err := operator.Message(ctx, id, o)
	if err != nil {
		return out, err
	}
	op := store.Operation{Method: "OperateSaga", Doing: "record an operation on a saga"}
	if err := db.Change(ctx, op, func(store.Writer) error { return nil }); err != nil {
		return out, err
	}
	if err := s.cfg.Publish(ctx, m); err != nil {
		return out, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	return s.sagaOutcome(ctx, operator, id, m.ID)
}

// outcomePoll is the wait between two looks at the history of an instance.
const outcomePoll = 50 * time.Millisecond

// sagaOutcome waits a moment for the decision of an engine.
func (s *Service) sagaOutcome(ctx context.Context, operator *saga.Operator, id, operation string) (saga.Outcome, error) {
	for end := time.Now().Add(decideWithin); ; {
		switch out, err := operator.Outcome(ctx, id, operation); {
		case err == nil && out.Refused != "":
			return out, fmt.Errorf("%w: %s", ErrSagaRefused, out.Refused)
		case err != nil, out.Handled, !time.Now().Before(end):
			return out, err
		}
		select {
		case <-time.After(outcomePoll):
		case <-ctx.Done():
			return saga.Outcome{}, ctx.Err()
		}
	}
}
