package scenariotest

import (
	"time"

	"github.com/postrider/postrider/saga"
)

func choose[Tx any](w *world[Tx]) {
	s := w.register(define(reserveStep(), saga.Choose[order]{Name: "pay", Cases: []saga.Case[order]{
		{Name: "card", If: func(o order) bool { return o.Method == "card" }, Steps: []step{chargeStep()}},
		{Name: "none", If: func(o order) bool { return o.Method == "none" }},
		{Name: "account", Steps: []step{w.localStep("debit", nil)}},
	}}))
	w.runEngine()
	w.runParticipants()
	for method, want := range map[string]map[string]int{
		"card": {"reserve": 1, "charge": 1}, "none": {"reserve": 2, "charge": 1}, "account": {"reserve": 3, "charge": 1, "debit": 1},
	} {
		_ = want
		w.start(s, order{ID: method, Method: method})
		w.ends(s, method, saga.Completed)
	}
	w.ledger(map[string]int{"reserve": 3, "charge": 1, "debit": 1})
	w.has("card", "step.done pay/card/charge", 1)
	w.has("account", "step.done pay/account/debit", 1)
}

// choiceStays: an instance stays in the case that was chosen, also where the conditions are others by now.
func choiceStays[Tx any](w *world[Tx]) {
	pay := func(method string) saga.Definition[order] {
		return define(reserveStep(), saga.Choose[order]{Name: "pay", Cases: []saga.Case[order]{
			{Name: "card", If: func(o order) bool { return o.Method == method }, Steps: []step{reviewStep(time.Hour), chargeStep()}},
			{Name: "account", Steps: []step{w.localStep("debit", nil)}},
		}})
	}
	s := w.process("engine", pay("card"))[0]
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	w.runParticipants()
	w.start(s, order{ID: "42", Method: "card"})
	w.becomes(s, "42", "in review", func(r saga.Result[order]) bool { return len(r.Waiting) == 1 && r.Waiting[0] == "pay/card/review" })
	s = w.process("engine", pay("cash"))[0]
	w.signal("42", "s1")
	w.ends(s, "42", saga.Completed)
	w.ledger(map[string]int{"reserve": 1, "charge": 1})
}
