package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

type (
	requestStep = saga.Request[purchase, purchase, string]
	localStep   = saga.Local[purchase, *memory.Tx]
	awaitStep   = saga.Await[purchase, string]
	eachStep    = saga.Each[purchase, purchase]
	childStep   = saga.Child[purchase, purchase]
)

var (
	reserve       = saga.DefineStep[purchase, string]("stock.reserve").WithTopic("stock")
	charge        = saga.DefineStep[purchase, string]("card.charge").WithTopic("cards")
	ship          = saga.DefineStep[purchase, string]("parcel.ship").WithTopic("parcels").WithoutUndo()
	reviewedOrder = postrider.Define[string]("order.reviewedOrder")

	errDown = errors.New("the service is down")
	errNo   = saga.Refuse("no", nil)
)

// steps makes the saga of these steps.
func (s *stage) steps(steps ...saga.Step[purchase]) {
	s.saga = saga.Definition[purchase]{Name: "orders", Version: 1, Steps: steps}
}

func requestOf(name string, step saga.StepDefinition[purchase, string]) *requestStep {
	return &requestStep{Name: name, Step: step, Command: func(p purchase) purchase { return p }}
}

func reserveStep() *requestStep { return requestOf("reserve", reserve) }
func chargeStep() *requestStep  { return requestOf("charge", charge) }

// shipStep is a pivot.
func shipStep() *requestStep {
	r := requestOf("ship", ship)
	r.Pivot = true
	return r
}

func note(text string) func(p *purchase, _ string) {
	return func(p *purchase, _ string) { p.Log = append(p.Log, text) }
}

func noteRefusal(p *purchase, r saga.Refusal) { p.Log = append(p.Log, r.Reason) }

func never(purchase) bool { return false }

// undone has a reservation that has to be undone, whose service does not answer to that.
func (s *stage) undone() {
	s.answers["card.charge"], s.answers["stock.reserve.undo"] = errNo, errDown
	s.steps(reserveStep(), chargeStep())
}

// failing makes the saga of a local step that fails twice.
func (s *stage) failing() *localStep {
	attempts := 0
	l := &localStep{Name: "work", NoUndo: true, Do: func(context.Context, *memory.Tx, *purchase) error {
		if attempts++; attempts < 3 {
			return errDown
		}
		return nil
	}}
	s.steps(l)
	return l
}

// awaiting makes the saga of a step that waits for a signal.
func (s *stage) awaiting() *awaitStep {
	a := &awaitStep{Name: "wait", Signal: reviewedOrder, Timeout: saga.NoTimeout}
	s.steps(a)
	return a
}

// size: a table of cases.
func configFields() map[string]fieldCase {
	completed := "42 is completed"
	return map[string]fieldCase{
		"Config.Name": {completed, func(s *stage) any {
			s.steps(reserveStep())
			return &s.config
		}},
		"Config.StepTimeout": {"-timed out reserve", func(s *stage) any {
			s.steps(reserveStep())
			s.silent, s.config.StepTimeout = []string{"stock"}, time.Hour
			return &s.config
		}},
		"Config.UndoTimeout": {"undo.sent reserve attempt 4", func(s *stage) any {
			s.undone()
			s.config.UndoTimeout, s.last = time.Second, time.Minute
			return &s.config
		}},
		"Config.UndoAttempts": {"step.stuck reserve", func(s *stage) any {
			s.undone()
			s.config.UndoAttempts = 1
			return &s.config
		}},
		"Config.StuckAfter": {"step.stuck reserve", func(s *stage) any {
			s.steps(shipStep(), reserveStep())
			s.silent, s.config.StuckAfter = []string{"stock"}, time.Minute
			return &s.config
		}},
		"Config.LocalTimeout": {"attempt.failed work", func(s *stage) any {
			s.steps(&localStep{Name: "work", NoUndo: true, Do: func(ctx context.Context, _ *memory.Tx, _ *purchase) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
					return nil
				}
			}})
			s.config.LocalTimeout = 100 * time.Millisecond
			return &s.config
		}},
		"Config.LocalAttempts": {"-" + completed, func(s *stage) any {
			s.failing()
			s.config.LocalAttempts = 1
			return &s.config
		}},
		"Config.BackoffBase": {"-undo.sent reserve attempt 3", func(s *stage) any {
			s.undone()
			s.config.BackoffBase, s.last = 5*time.Minute, 2*time.Minute
			return &s.config
		}},
		"Config.BackoffMax": {"undo.sent reserve attempt 15", func(s *stage) any {
			s.undone()
			s.config.BackoffMax = time.Second
			return &s.config
		}},
		"Config.EarlyFor": {completed, func(s *stage) any {
			s.awaiting()
			s.config.EarlyFor, s.late = time.Hour, true
			s.act = func(s *stage) {
				s.signal("early")
				time.Sleep(5 * time.Minute)
				s.start(s.sagas["orders"], "42")
			}
			return &s.config
		}},
		"Config.MaxSignals": {"dead-lettered postrider.saga.signal", func(s *stage) any {
			s.steps(reserveStep(), s.awaiting())
			s.silent, s.config.MaxSignals = []string{"stock"}, 1
			s.act = func(s *stage) { s.signal("one"); s.signal("two") }
			return &s.config
		}},
		"Config.MaxState": {"step.stuck reserve", func(s *stage) any {
			r := reserveStep()
			r.Done = note(strings.Repeat("x", 1000))
			s.steps(r)
			s.config.MaxState = 900
			return &s.config
		}},
		"Config.MaxItems": {"step.refused lines", func(s *stage) any {
			s.steps(eachLine())
			s.config.MaxItems = 1
			return &s.config
		}},
		"Config.Grace": {"-turned back", func(s *stage) any {
			s.contract, s.act, s.groups = contract(), events(OrderCreated), true
			s.contract.Deadline, s.config.Grace = time.Minute, time.Hour
			return &s.config
		}},
		"Config.AllowRedefine": {"its structure is accepted: <nil>", func(s *stage) any {
			s.steps(reserveStep())
			s.config.AllowRedefine, s.act = true, redefineElsewhere
			return &s.config
		}},
		"Config.KeepEnded": {"-" + completed, func(s *stage) any {
			s.steps(reserveStep())
			s.config.KeepEnded = time.Minute
			return &s.config
		}},
		"Config.WaitInterval": {"1h0m0s heard of the end", func(s *stage) any {
			s.awaiting()
			s.config.WaitInterval, s.last, s.act = time.Hour, 2*time.Hour, waitElsewhere
			return &s.config
		}},
		"Config.Observer": {"observed orders", func(s *stage) any {
			s.steps(reserveStep())
			s.config.Observer = &observe.Saga{Transitioned: func(tr observe.Transitioned) { s.say("observed %s", tr.Saga) }}
			return &s.config
		}},
		"Config.Logger": {"does not have the definition", func(s *stage) any {
			s.steps(reserveStep())
			s.config.Logger, s.late, s.last = slog.New(slog.NewTextHandler(s, nil)), true, time.Second
			s.act = func(s *stage) { s.start(s.elsewhere(2), "42") }
			return &s.config
		}},
	}
}

// elsewhere returns the saga as another process has it, in a version.
func (s *stage) elsewhere(version int) *saga.Saga[*memory.Tx, purchase] {
	other, err := saga.New(s.store, s.box, s.config)
	if err != nil {
		s.Fatal(err)
	}
	d := s.saga
	d.Version = version
	orders, err := saga.Register(other, d)
	if err != nil {
		s.Fatal(err)
	}
	return orders
}

// redefineElsewhere has another process with other steps under the same version.
func redefineElsewhere(s *stage) {
	time.Sleep(time.Second) // the first one's structure is stored
	other, err := saga.New(s.store, s.box, s.config)
	if err != nil {
		s.Fatal(err)
	}
	d := s.saga
	d.Steps = []saga.Step[purchase]{chargeStep()}
	if _, err := saga.Register(other, d); err != nil {
		s.Fatal(err)
	}
	s.say("its structure is accepted: %v", other.CheckDefinitions(s.Context()))
}

// waitElsewhere waits in another process for an instance that ends after a minute.
func waitElsewhere(s *stage) {
	time.AfterFunc(time.Minute, func() { s.signal("now") })
	_, err := s.elsewhere(1).Wait(s.Context(), "42")
	s.say("heard of the end: %v", err)
}

func definitionFields() map[string]fieldCase {
	orders := func(s *stage) *saga.Definition[purchase] {
		s.steps(reserveStep())
		return &s.saga
	}
	return map[string]fieldCase{
		"Definition.Name":    {"42: saga orders v1", func(s *stage) any { return orders(s) }},
		"Definition.Version": {"42: saga orders v1", func(s *stage) any { return orders(s) }},
		"Definition.Steps":   {"step.done reserve", func(s *stage) any { return orders(s) }},
		"Definition.Key": {`key "order/42"`, func(s *stage) any {
			d := orders(s)
			d.Key = func(p purchase) string { return "order/" + p.ID }
			return d
		}},
		"Definition.Deadline": {"turned back", func(s *stage) any {
			d := orders(s)
			s.silent, s.config.StepTimeout, d.Deadline = []string{"stock"}, time.Hour, time.Minute
			return d
		}},
		"Definition.Upgrade": {"upgraded from 1", func(s *stage) any {
			s.awaiting()
			s.second = s.saga
			s.second.Version = 2
			s.second.Upgrade = func(from int, data json.RawMessage) (p purchase, err error) {
				p.Log = append(p.Log, "upgraded from 1")
				return p, nil
			}
			s.act = func(s *stage) { s.operate("42", saga.Operation{Verb: saga.Migrate, To: 2}) }
			return &s.second
		}},
		"Definition.OnCompleted": {"order.completed on order.completed", func(s *stage) any {
			d := orders(s)
			d.OnCompleted = announce("order.completed")
			return d
		}},
		"Definition.OnCompensated": {"order.compensated on order.compensated", func(s *stage) any {
			d := orders(s)
			s.answers["stock.reserve"] = errNo
			d.OnCompensated = announce("order.compensated")
			return d
		}},
	}
}

func announce(messageType string) saga.Announcement[purchase] {
	return saga.Announce(postrider.Define[string](messageType), func(p purchase) string { return p.ID })
}
