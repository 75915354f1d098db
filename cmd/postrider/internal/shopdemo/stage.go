package shopdemo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
)

// stage runs a scenario: it prints what is done and found, and checks what is expected.
type stage struct {
	*world
	out    io.Writer
	pen    drawing.Pen
	width  int // of the terminal, 0 without one
	number int
	broken []string
}

func newStage(cfg Config) *stage {
	s := &stage{out: cfg.Out, pen: drawing.Pen(cfg.Color)}
	if cfg.Width != nil {
		s.width = max(cfg.Width(), minWidth)
	}
	return s
}

// title prints what is done and expected.
func (s *stage) title(sc *Scenario) {
	about := sc.about
	if s.width > 0 {
		about = strings.Join(drawing.Wrap(about, s.width-1), "\n")
	}
	fmt.Fprintf(s.out, "%s\n%s\n\n", s.pen.Paint(drawing.Bold, fmt.Sprintf("Scenario %d: %s", sc.Number, sc.Title)), about)
}

// line prints a mark and a text, which is broken on a terminal.
func (s *stage) line(color drawing.Color, mark, text string) {
	lines := []string{text}
	if s.width > 0 {
		lines = drawing.Hang(text, s.width-1-len(mark), 0)
	}
	fmt.Fprintf(s.out, "%s%s\n", s.pen.Paint(color, mark), strings.Join(lines, "\n"+strings.Repeat(" ", len(mark))))
}

// do prints one numbered step of the scenario.
func (s *stage) do(format string, args ...any) {
	s.number++
	s.line(drawing.Dim, fmt.Sprintf("%2d  ", s.number), fmt.Sprintf(format, args...))
}

// by prints one numbered step, and the request or command that does it.
func (s *stage) by(how, format string, args ...any) {
	s.do("%-48s %s", fmt.Sprintf(format, args...), how)
}

// bothKinds does the same with an orchestrated and a choreographed order.
func (s *stage) bothKinds(ctx context.Context, f func(context.Context, *stage, kind) error) error {
	for i, k := range []kind{orchestrated, choreographed} {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		fmt.Fprintln(s.out, s.pen.Paint(drawing.Bold, "The order is "+k.name+":"))
		s.number = 0
		if err := f(ctx, s, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// observed says whether nobody asks for the undos of an order.
func (s *stage) observed(k kind) bool { return k == choreographed && s.cfg.Compensate == saga.Observe }

// placed prints and places an order.
func (s *stage) placed(ctx context.Context, k kind, o orderRequest, wait int) (id string, r reply, err error) {
	id = newOrder()
	var lines []string
	for _, l := range o.Lines {
		lines = append(lines, fmt.Sprintf("%d × %s", l.Quantity, l.SKU))
	}
	what := strings.Join(lines, " and ")
	if o.Hold {
		what += ", to be held"
	}
	s.by("POST "+k.path, "order %s of %s", short(id), what)
	r, err = s.place(ctx, k, id, o, wait)
	if err == nil && r.status >= 500 {
		err = fmt.Errorf("POST %s: %d: %s", k.path, r.status, r.text())
	}
	return id, r, err
}

// expect checks something that must be true.
func (s *stage) expect(kept bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if kept {
		s.line(drawing.Green, "    ok  ", text)
		return
	}
	s.broken = append(s.broken, text)
	s.line(drawing.Red, "    NO  ", text)
}

// patience is how long a scenario waits for what must happen, beyond the time limits of the sagas: longer than a slow machine needs.
const patience = 5 * time.Minute

// await waits until an order has a status, and returns it.
func (s *stage) await(ctx context.Context, id string, within time.Duration, want ...shop.Status) (v shop.OrderView, err error) {
	return poll(ctx, within+patience, fmt.Sprintf("order %s becomes %s", id, want), func() (shop.OrderView, bool, error) {
		v, err := s.order(ctx, id)
		if slices.Contains(want, v.Status) {
			return v, true, err
		}
		return v, false, err
	})
}

// poll asks until the answer is what is waited for. What does not exist yet, such as the saga of an order whose first event the tracker
// has not read, is asked for again.
func poll[T any](ctx context.Context, within time.Duration, what string, ask func() (answer T, done bool, err error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		answer, done, err := ask()
		if done || err != nil && !errors.Is(err, errNotFound) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, fmt.Errorf("not within %s: %s; there is %+v", within, what, answer)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// printHistory prints what happened to the steps of a saga, with the time since its start.
func (s *stage) printHistory(ctx context.Context, id string) (shownSaga, error) {
	saga, err := s.saga(ctx, id)
	if err != nil {
		return saga, err
	}
	for _, t := range saga.History {
		for _, e := range t.Entries {
			what, step := strings.CutPrefix(e.Name, "step.")
			what, operator := strings.CutPrefix(what, "operator.")
			text := e.Text
			if operator {
				text = "by " + t.Actor + ": " + t.Note
			}
			if (step || operator || e.Name == "timed out" || e.Name == "late") && what != "skipped" {
				s.do("%s", strings.TrimRight(fmt.Sprintf("%-15s %-10s %5d ms  %s", e.Step, what, t.At.Sub(saga.StartedAt).Milliseconds(), text), " "))
			}
		}
	}
	return saga, nil
}

// has reports whether the history of a saga has an entry, of a step unless that is empty.
func (s shownSaga) has(name, step string) bool { return s.count(name, step) > 0 }

func (s shownSaga) count(name, step string) (n int) {
	for _, t := range s.History {
		for _, e := range t.Entries {
			if e.Name == name && (step == "" || e.Step == step) {
				n++
			}
		}
	}
	return n
}

// newOrder returns an ID for an order.
func newOrder() string { return postrider.NewID() }

// short shortens an ID for people.
func short(id string) string { return id[:min(8, len(id))] + "…" }
