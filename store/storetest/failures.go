package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

func panicIsFailedAttempt(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts, cfg.Concurrency = 3, 2
	var j journal
	e.start(cfg, func(_ context.Context, m *postrider.Message) error {
		j.note(m, "")
		switch m.Subject {
		case "panic":
			panic("something unexpected")
		case "exit":
			runtime.Goexit()
		}
		return nil
	})
	bad := make(map[string]string)
	for _, subject := range []string{"panic", "exit"} {
		m := e.message("order/" + subject)
		m.Subject = subject
		bad[subject] = e.send(m)[0]
	}
	good := e.sendKeys("order/panic", "order/exit", "order/1", "")
	e.untilLen(&j, 10)
	e.untilSettled("r")
	for _, id := range good {
		if got := j.attempts(id); fmt.Sprint(got) != "[1]" {
			e.t.Errorf("attempts at a good message: %v", got)
		}
	}
	deadLetters := e.deadLetters(everyDead)
	if len(deadLetters) != 2 {
		e.t.Fatalf("dead letters: %+v, want two", deadLetters)
	}
	for _, l := range deadLetters {
		if l.Attempts != 3 || l.Message.Subject == "panic" && (!strings.Contains(l.Cause, "something unexpected") || !strings.Contains(l.Cause, ".go:")) {
			e.t.Errorf("after %s: %d attempts, cause %.300s", l.Message.Subject, l.Attempts, l.Cause)
		}
	}
}

// silent is an error without a text.
type silent struct{}

func (silent) Error() string { return "" }

func errorWithoutText(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts = 1
	e.start(cfg, func(context.Context, *postrider.Message) error { return silent{} })
	e.sendKeys("order/1")
	e.until("the message is dead", func() bool { return len(e.deadLetters(everyDead)) == 1 })
	if l := e.deadLetters(everyDead)[0]; !strings.Contains(l.Cause, "silent") || l.Reason == "" || len(l.History) != 1 {
		e.t.Errorf("cause %q, reason %q, history %+v; want the type of the error at least", l.Cause, l.Reason, l.History)
	}
}

func interceptorError(e *env) {
	cfg := e.quick()
	cfg.MaxAttempts = 2
	var j journal
	cfg.Interceptors = []relay.Interceptor{func(next postrider.Handler) postrider.Handler {
		return func(ctx context.Context, m *postrider.Message) error {
			if m.Headers["stop"] != "" {
				return errors.New("not allowed")
			}
			return next(ctx, m)
		}
	}}
	e.start(cfg, j.handler(""))
	m := e.message("order/1")
	m.Headers = map[string]string{"stop": "yes"}
	e.send(m)
	good := e.sendKeys("order/1")
	e.untilLen(&j, 1)
	e.untilSettled("r")
	e.wantIDs("delivered", j.ids(""), good)
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) != 1 || deadLetters[0].Attempts != 2 || deadLetters[0].Cause != "not allowed" {
		e.t.Errorf("dead letters: %+v", deadLetters)
	}
}
