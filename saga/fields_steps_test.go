package saga_test

import (
	"context"
	"time"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

const done, compensated = "42 is completed", "42 is compensated"

// size: a table of cases.
func stepFields() map[string]fieldCase {
	// one has a requestStep as the only step, and lets a case change it.
	one := func(change func(s *stage, r *requestStep)) func(s *stage) any {
		return func(s *stage) any {
			r := reserveStep()
			s.steps(r)
			change(s, r)
			return r
		}
	}
	as := func(*stage, *requestStep) {}
	work := func(change func(s *stage, l *localStep)) func(s *stage) any {
		return func(s *stage) any {
			l := &localStep{
				Name:   "work",
				Do:     func(context.Context, *memory.Tx, *purchase) error { s.say("work is done"); return nil },
				NoUndo: true,
			}
			s.steps(l, chargeStep())
			change(s, l)
			return l
		}
	}
	asIs := func(*stage, *localStep) {}
	waiting := func(change func(s *stage, a *awaitStep)) func(s *stage) any {
		return func(s *stage) any {
			a := s.awaiting()
			a.Timeout, s.act = time.Minute, func(s *stage) { s.signal("go") }
			change(s, a)
			return a
		}
	}
	ask := func(change func(s *stage, a *saga.Ask[purchase])) func(s *stage) any {
		return func(s *stage) any {
			a := &saga.Ask[purchase]{
				Name: "review", Question: func(purchase) string { return "really?" }, Options: []string{"yes", "no"}, Timeout: time.Minute,
			}
			s.steps(a)
			s.act = func(s *stage) { s.operate("42", saga.Operation{Verb: saga.AnswerAsk, Step: "review", Option: "yes"}) }
			change(s, a)
			return a
		}
	}
	return map[string]fieldCase{
		"Request.Name":    {"step.done reserve", one(as)},
		"Request.Step":    {"stock.reserve on stock", one(as)},
		"Request.Command": {`stock.reserve on stock: {"id":"42"`, one(as)},
		"Request.OnlyIf":  {"step.skipped reserve", one(func(_ *stage, r *requestStep) { r.OnlyIf = never })},
		"Request.Done":    {`"log":["reserved"]`, one(func(_ *stage, r *requestStep) { r.Done = note("reserved") })},
		"Request.Refused": {`"log":["no"]`, one(func(s *stage, r *requestStep) { r.Refused, s.answers["stock.reserve"] = noteRefusal, errNo })},
		"Request.Timeout": {"-timed out reserve", one(func(s *stage, r *requestStep) { r.Timeout, s.silent = time.Hour, []string{"stock"} })},
		"Request.Attempts": {"command.sent reserve attempt 2", one(func(s *stage, r *requestStep) {
			r.Attempts, s.silent = 2, []string{"stock"}
		})},
		"Request.Pivot": {"-stock.reserve.undo", one(func(s *stage, r *requestStep) {
			s.steps(r, chargeStep())
			r.Pivot, s.answers["card.charge"] = true, errNo
		})},

		"Local.Name":   {"step.done work", work(asIs)},
		"Local.Do":     {"work is done", work(asIs)},
		"Local.NoUndo": {done, work(asIs)},
		"Local.OnlyIf": {"step.skipped work", work(func(_ *stage, l *localStep) { l.OnlyIf = never })},
		"Local.Undo": {"work is undone", work(func(s *stage, l *localStep) {
			l.NoUndo, s.answers["card.charge"] = false, errNo
			l.Undo = func(context.Context, *memory.Tx, *purchase) error { s.say("work is undone"); return nil }
		})},
		"Local.Refused": {`"log":["no"]`, work(func(_ *stage, l *localStep) {
			l.Do, l.Refused = func(context.Context, *memory.Tx, *purchase) error { return errNo }, noteRefusal
		})},
		"Local.Attempts": {"-" + done, func(s *stage) any {
			l := s.failing()
			l.Attempts = 2
			return l
		}},
		"Local.Pivot": {"-" + compensated, work(func(s *stage, l *localStep) {
			l.Pivot, s.answers["card.charge"] = true, errNo
		})},

		"Await.Name":     {"step.done wait", waiting(func(*stage, *awaitStep) {})},
		"Await.Signal":   {done, waiting(func(*stage, *awaitStep) {})},
		"Await.OnlyIf":   {"step.skipped wait", waiting(func(_ *stage, a *awaitStep) { a.OnlyIf = never })},
		"Await.Received": {`"log":["received"]`, waiting(func(_ *stage, a *awaitStep) { a.Received = note("received") })},
		"Await.Timeout":  {"timed out wait", waiting(func(s *stage, _ *awaitStep) { s.act = nil })},
		"Await.TimedOut": {`"log":["late"]`, waiting(func(s *stage, a *awaitStep) { s.act, a.TimedOut = nil, late })},

		"Ask.Name":     {"step.done review", ask(func(*stage, *saga.Ask[purchase]) {})},
		"Ask.Question": {"really?", ask(func(s *stage, _ *saga.Ask[purchase]) { s.act = nil })},
		"Ask.Options":  {done, ask(func(*stage, *saga.Ask[purchase]) {})},
		"Ask.OnlyIf":   {"step.skipped review", ask(func(_ *stage, a *saga.Ask[purchase]) { a.OnlyIf = never })},
		"Ask.Roles":    {`"roles":["boss"]`, ask(func(_ *stage, a *saga.Ask[purchase]) { a.Roles = []string{"boss"} })},
		"Ask.Answered": {`"log":["yes"]`, ask(func(_ *stage, a *saga.Ask[purchase]) {
			a.Answered = func(p *purchase, answer saga.Answer) error { p.Log = append(p.Log, answer.Option); return nil }
		})},
		"Ask.Timeout":  {"timed out review", ask(func(s *stage, _ *saga.Ask[purchase]) { s.act = nil })},
		"Ask.TimedOut": {`"log":["late"]`, ask(func(s *stage, a *saga.Ask[purchase]) { s.act, a.TimedOut = nil, late })},
	}
}

func late(p *purchase) { p.Log = append(p.Log, "late") }

// eachLine reserves each of two lines.
func eachLine() *eachStep {
	return &eachStep{
		Name: "lines", Items: func(purchase) []purchase { return []purchase{{ID: "a"}, {ID: "b"}} },
		ID: func(line purchase) string { return line.ID }, Steps: []saga.Step[purchase]{reserveStep()},
	}
}

// size: a table of cases.
func groupFields() map[string]fieldCase {
	choose := func(change func(c *saga.Choose[purchase])) *saga.Choose[purchase] {
		c := &saga.Choose[purchase]{Name: "pick", Cases: []saga.Case[purchase]{{Name: "all", Steps: []saga.Step[purchase]{reserveStep()}}}}
		if change != nil {
			change(c)
		}
		return c
	}
	choosing := func(change func(c *saga.Choose[purchase])) func(s *stage) any {
		return func(s *stage) any {
			c := choose(change)
			s.steps(c)
			return c
		}
	}
	ofCase := func(change func(c *saga.Choose[purchase])) func(s *stage) any {
		return func(s *stage) any {
			c := choose(change)
			s.steps(c)
			return &c.Cases[0]
		}
	}
	parallel := func(change func(p *saga.Parallel[purchase])) func(s *stage) any {
		return func(s *stage) any {
			p := &saga.Parallel[purchase]{Name: "both", Steps: []saga.Step[purchase]{reserveStep(), chargeStep()}}
			s.steps(p)
			change(p)
			return p
		}
	}
	lines := func(change func(s *stage, e *eachStep)) func(s *stage) any {
		return func(s *stage) any {
			e := eachLine()
			s.steps(e)
			change(s, e)
			return e
		}
	}
	pay := func(change func(s *stage, c *childStep)) func(s *stage) any {
		return func(s *stage) any {
			s.first = saga.Definition[purchase]{Name: "payment", Version: 1, Steps: []saga.Step[purchase]{chargeStep()}}
			c := &childStep{Name: "pay", Saga: s.first, Data: func(p purchase) purchase { return p }}
			s.steps(c)
			change(s, c)
			return c
		}
	}
	return map[string]fieldCase{
		"Choose.Name":   {"step.done pick/all/reserve", choosing(nil)},
		"Choose.Cases":  {"stock.reserve on stock", choosing(nil)},
		"Choose.OnlyIf": {"OnlyIf is false", choosing(func(c *saga.Choose[purchase]) { c.OnlyIf = never })},
		"Case.Name":     {"step.done pick/all/reserve", ofCase(nil)},
		"Case.Steps":    {"stock.reserve on stock", ofCase(nil)},
		"Case.If":       {"no case applies", ofCase(func(c *saga.Choose[purchase]) { c.Cases[0].If = never })},

		"Parallel.Name":   {"step.done both/reserve", parallel(func(*saga.Parallel[purchase]) {})},
		"Parallel.Steps":  {"stock.reserve on stock", parallel(func(*saga.Parallel[purchase]) {})},
		"Parallel.OnlyIf": {"step.skipped both", parallel(func(p *saga.Parallel[purchase]) { p.OnlyIf = never })},

		"Each.Name":   {"step.done lines[b]/reserve", lines(func(*stage, *eachStep) {})},
		"Each.Items":  {"step.done lines[b]/reserve", lines(func(*stage, *eachStep) {})},
		"Each.ID":     {"step.done lines[b]/reserve", lines(func(*stage, *eachStep) {})},
		"Each.Steps":  {"stock.reserve on stock", lines(func(*stage, *eachStep) {})},
		"Each.OnlyIf": {"step.skipped lines", lines(func(_ *stage, e *eachStep) { e.OnlyIf = never })},
		"Each.Join": {`"log":["a","b"]`, lines(func(_ *stage, e *eachStep) {
			e.Join = func(p *purchase, lines []purchase) { p.Log = []string{lines[0].ID, lines[1].ID} }
		})},
		"Each.Window": {"-command.sent lines[b]/reserve", lines(func(s *stage, e *eachStep) {
			e.Window, s.silent, s.config.StepTimeout = 1, []string{"stock"}, time.Hour
		})},

		"Child.Name":   {"step.done pay", pay(func(*stage, *childStep) {})},
		"Child.Saga":   {"card.charge on cards", pay(func(*stage, *childStep) {})},
		"Child.Data":   {`card.charge on cards: {"id":"42"`, pay(func(*stage, *childStep) {})},
		"Child.OnlyIf": {"step.skipped pay", pay(func(_ *stage, c *childStep) { c.OnlyIf = never })},
		"Child.Done": {`"log":["of the child 42"]`, pay(func(_ *stage, c *childStep) {
			c.Done = func(p *purchase, child purchase) { p.Log = []string{"of the child " + child.ID} }
		})},
		"Child.Refused": {done, pay(func(s *stage, c *childStep) { c.Refused, s.answers["card.charge"] = noteRefusal, errNo })},
		"Child.Pivot": {"-card.charge.undo", pay(func(s *stage, c *childStep) {
			s.steps(c, reserveStep())
			c.Pivot, s.answers["stock.reserve"] = true, errNo
		})},
	}
}
