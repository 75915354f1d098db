package scenariotest

import (
	"context"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// order is the data of the sagas.
type order struct {
	ID       string `json:"id"`
	Method   string `json:"method,omitzero"`
	Stock    string `json:"stock,omitzero"`
	Payment  string `json:"payment,omitzero"`
	Parcel   string `json:"parcel,omitzero"`
	Reviewed string `json:"reviewed,omitzero"`
	Lines    int    `json:"lines,omitzero"`
	// Did is what the steps of a random saga did, by path.
	Did map[string]string `json:"did,omitzero"`
}

// item is the data of commands, replies and signals.
type item struct {
	ID string `json:"id"`
}

var (
	reserve  = saga.DefineStep[item, item]("stock.reserve").WithTopic("stock")
	charge   = saga.DefineStep[item, item]("card.charge").WithTopic("cards")
	ship     = saga.DefineStep[item, item]("parcel.ship").WithTopic("parcels").WithoutUndo()
	reviewed = postrider.Define[item]("order.reviewed")
	ended    = postrider.Define[item]("announced").WithTopic("announcements")
)

type step = saga.Step[order]

func asItem(o order) item { return item{o.ID} }

func reserveStep() saga.Request[order, item, item] {
	return saga.Request[order, item, item]{Name: "reserve", Step: reserve, Command: asItem, Done: func(o *order, r item) { o.Stock = r.ID }}
}

// linesStep reserves each line of an order: item "42/1" of order 42 is its first.
func linesStep(window int) saga.Each[order, line] {
	return saga.Each[order, line]{
		Name: "lines", Window: window, ID: func(l line) string { return l.Line },
		Items: func(o order) (lines []line) {
			for i := range o.Lines {
				lines = append(lines, line{Order: o.ID, Line: strconv.Itoa(i + 1)})
			}
			return lines
		},
		Steps: []saga.Step[line]{saga.Request[line, item, item]{
			Name: "reserve", Step: reserve, Command: func(l line) item { return item{l.Order + "/" + l.Line} },
			Done: func(l *line, r item) { l.Stock = r.ID },
		}},
		Join: func(o *order, lines []line) {
			for _, l := range lines {
				o.Stock += l.Stock + ";"
			}
		},
	}
}

// line is an item of linesStep.
type line struct {
	Order string `json:"order"`
	Line  string `json:"line"`
	Stock string `json:"stock,omitzero"`
}

func chargeStep() saga.Request[order, item, item] {
	return saga.Request[order, item, item]{Name: "charge", Step: charge, Command: asItem, Done: func(o *order, r item) { o.Payment = r.ID }}
}

func shipStep() saga.Request[order, item, item] {
	return saga.Request[order, item, item]{Name: "ship", Step: ship, Command: asItem, Pivot: true, Done: func(o *order, r item) { o.Parcel = r.ID }}
}

// within gives a step less time for its answer.
func within(timeout time.Duration, s saga.Request[order, item, item]) saga.Request[order, item, item] {
	s.Timeout = timeout
	return s
}

func reviewStep(timeout time.Duration) saga.Await[order, item] {
	return saga.Await[order, item]{
		Name: "review", Signal: reviewed, Timeout: timeout, Received: func(o *order, s item) { o.Reviewed = s.ID },
	}
}

// localStep is a local step with an effect; f runs next to it.
func (w *world[Tx]) localStep(name string, f func() error) saga.Local[order, Tx] {
	return saga.Local[order, Tx]{
		Name: name,
		Do: func(ctx context.Context, tx Tx, o *order) error {
			o.Payment = name
			if err := effect(ctx, tx, w.box, "do", name); err != nil || f == nil {
				return err
			}
			return f()
		},
		Undo: func(ctx context.Context, tx Tx, o *order) error {
			o.Payment = ""
			return effect(ctx, tx, w.box, "undo", name)
		},
	}
}

// define returns a saga of these steps that announces its end.
func define(steps ...step) saga.Definition[order] {
	return saga.Definition[order]{
		Name: "fulfilment", Version: 1, Steps: steps,
		OnCompleted:   saga.Announce(ended, asItem),
		OnCompensated: saga.Announce(ended, asItem),
	}
}
