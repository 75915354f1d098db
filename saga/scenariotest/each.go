package scenariotest

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// eachLine: the lines of an order are reserved together. One that is out of stock takes the others back, and nothing is charged.
func eachLine[Tx any](w *world[Tx]) {
	s := w.register(define(linesStep(2), chargeStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "41", Lines: 5})
	want := ""
	for i := range 5 {
		want += fmt.Sprintf("reserve of 41/%d;", i+1)
	}
	if r := w.ends(s, "41", saga.Completed); r.Data.Stock != want || r.Data.Payment != "charge of 41" {
		w.Errorf("data %+v, want the stock %q and one payment", r.Data, want)
	}
	w.ledger(map[string]int{"reserve": 5, "charge": 1})

	w.onDo("reserve", func(_ Tx, m *postrider.Message) error {
		if strings.Contains(string(m.Payload), "42/4") {
			return saga.Refuse("out of stock", nil)
		}
		return nil
	})
	w.start(s, order{ID: "42", Lines: 5})
	r := w.ends(s, "42", saga.Compensated)
	if r.Cause == nil || r.Cause.Step != "lines[4]/reserve" || r.Cause.Reason != "out of stock" || r.Data.Stock != "" {
		w.Errorf("cause %+v, data %+v; want line 4 out of stock, and nothing joined", r.Cause, r.Data)
	}
	w.ledger(map[string]int{"reserve": 5, "charge": 1})
	for i := range 3 {
		w.has("42", fmt.Sprintf("step.undone lines[%d]/reserve", i+1), 1)
	}
	w.has("42", "step.refused lines[4]/reserve", 1)
	w.has("42", "command.sent charge", 0)

	w.start(s, order{ID: "43"})
	w.ends(s, "43", saga.Completed) // without lines
	w.ledger(map[string]int{"reserve": 5, "charge": 2})
}

// eachLocal: local steps of items take the data of their item, also to undo it after all were joined.
func eachLocal[Tx any](w *world[Tx]) {
	lines := linesStep(0)
	lines.Steps = []saga.Step[line]{saga.Local[line, Tx]{
		Name: "book",
		Do: func(ctx context.Context, tx Tx, l *line) error {
			l.Stock = "booked " + l.Line
			return effect(ctx, tx, w.box, "do", l.Line)
		},
		Undo: func(ctx context.Context, tx Tx, l *line) error {
			if l.Stock != "booked "+l.Line {
				w.Errorf("undo of line %s got %+v", l.Line, *l)
			}
			return effect(ctx, tx, w.box, "undo", l.Line)
		},
	}}
	s := w.register(define(lines, chargeStep()))
	w.runEngine()
	w.runParticipants()
	w.start(s, order{ID: "41", Lines: 3})
	if r := w.ends(s, "41", saga.Completed); r.Data.Stock != "booked 1;booked 2;booked 3;" {
		w.Errorf("data %+v", r.Data)
	}
	w.ledger(map[string]int{"1": 1, "2": 1, "3": 1, "charge": 1})
	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", nil) })
	w.start(s, order{ID: "42", Lines: 3})
	w.ends(s, "42", saga.Compensated)
	w.ledger(map[string]int{"1": 1, "2": 1, "3": 1, "charge": 1})
}
