package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/relay"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/sqlite"
)

// ChecksOf are the checks of a store that need not be open: to be named, not to run.
func ChecksOf(c *config.Config, s config.Store) ([]doctor.Check, error) {
	l, err := locate(s)
	if err != nil {
		return nil, err
	}
	o := &Outbox{System: l.kind}
	switch l.kind {
	case kindSQLite:
		o.Store = new(sqlite.Store)
	case kindPostgres:
		o.Store = new(postgres.Store)
	case kindMySQL:
		o.Store = new(mysqlstore.Store)
	}
	return append(doctor.Checks(o), o.ConfiguredChecks(c, s)...), nil
}

// ConfiguredChecks returns the checks of a store that depend on the configuration: of its disk, and of the destinations of its relays.
func (o *Outbox) ConfiguredChecks(c *config.Config, s config.Store) (out []doctor.Check) {
	if !o.IsFile() { // a file has its own check
		out = append(out, doctor.Disk(o.DataPath))
	}
	for _, r := range c.Relays {
		if of, ok := c.StoreOf(r); ok && of.Name == s.Name && r.Publisher.URL != "" {
			out = append(out, horizon(r), destination(r))
		}
	}
	return out
}

// readOnly are the options with which a publisher makes nothing at its broker, by the name of the broker.
var readOnly = map[string]map[string]string{"nats": {"check_only": "true"}, "rabbitmq": {"check_only": "true"}, "kafka": {"create": "false"}}

// destination checks that a broker is there, has what the relay publishes to, and keeps what it accepts.
func destination(r config.Relay) doctor.Check {
	shown := ShownPublisher(r.Publisher.URL)
	unusable := func(why string) doctor.Finding {
		message, fix, _ := strings.Cut(why, "; ")
		return doctor.Finding{
			Level: doctor.Fault, Target: r.Name, Message: fmt.Sprintf("The destination of %s (%s) cannot be used: %s.", r.Name, shown, message),
			Impact: "Its messages wait in order until it can.", Fix: []doctor.Fix{fixOf(fix)}, Evidence: "a connection that publishes nothing",
		}
	}
	run := func(ctx context.Context) (out []doctor.Finding, err error) {
		risks, err := ask(ctx, r)
		switch {
		case isTimeout(err):
			return nil, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		case err != nil:
			out = append(out, unusable(err.Error()))
		}
		for _, risk := range risks {
			message, fix, _ := strings.Cut(risk, "; ")
			out = append(out, doctor.Finding{
				Level: doctor.Warning, Target: r.Name, Message: fmt.Sprintf("The destination of %s (%s): %s.", r.Name, shown, message),
				Impact: "Messages that were delivered may be lost before they are read.", Fix: []doctor.Fix{fixOf(fix)}, Evidence: "the settings of the broker",
			})
		}
		return out, nil
	}
	return doctor.Check{
		Name: "destination." + r.Name, Title: fmt.Sprintf("The destination of %s is there, and keeps what it accepts", r.Name), Run: run,
		Silence: func() []doctor.Finding { return []doctor.Finding{unusable("it does not answer")} },
	}
}

// isTimeout reports whether a client gave up waiting for its broker, because of the time that the check has or one of its own.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout()
}

func ask(ctx context.Context, r config.Relay) (risks []string, err error) {
	publisher, err := openReadOnly(ctx, r)
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	if reader, ok := publisher.(postrider.RiskReader); ok {
		risks, err = reader.Risks(ctx)
	}
	return risks, err
}

// fixOf makes a fix of what an error says after its semicolon.
func fixOf(text string) doctor.Fix {
	if text == "" {
		return doctor.Fix{Text: "start it, or change the URL of the publisher"}
	}
	if _, command, ok := strings.Cut(text, "run: "); ok {
		return doctor.Fix{Text: "at the broker:", Command: command}
	}
	return doctor.Fix{Text: text}
}

func openReadOnly(ctx context.Context, r config.Relay) (interface {
	postrider.Publisher
	io.Closer
}, error) {
	p := r.Publisher
	b, err := config.BrokerOf(p.URL)
	if err != nil {
		return nil, err
	}
	p.Options = maps.Clone(p.Options)
	if p.Options == nil {
		p.Options = map[string]string{}
	}
	maps.Copy(p.Options, readOnly[b.Name])
	a, address, err := adapterOf(p)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, address, Uses{Relay: r.Name, Logger: slog.New(slog.DiscardHandler)})
}

// horizon compares the time for which a relay may send a message again with the time for which its broker drops duplicates. A broker
// that drops none is not concerned: its consumers need an inbox anyway.
func horizon(r config.Relay) doctor.Check {
	return doctor.Check{Name: "relay.horizon." + r.Name, Title: fmt.Sprintf("The broker of %s drops duplicates for as long as messages are retried", r.Name), Run: func(context.Context) ([]doctor.Finding, error) {
		promises, err := PromisesOf(r.Publisher)
		if err != nil || promises.DedupeWindow == 0 {
			return nil, err
		}
		longest := longestRetries(r)
		if longest <= promises.DedupeWindow {
			return nil, nil
		}
		return []doctor.Finding{{
			Level: doctor.Warning, Target: r.Name,
			Message: fmt.Sprintf("%s may send a message again for up to %s, and the broker drops duplicates for %s.", r.Name,
				plain.Duration(longest, " "), plain.Duration(promises.DedupeWindow, " ")),
			Impact: "A consumer without an inbox may process a message twice.",
			Fix: []doctor.Fix{
				{Text: "if the stream is not made by the relay, edit it, and say so in the URL of the publisher:", Command: fmt.Sprintf("dedupe_window=%s", (longest + time.Minute).Round(time.Minute))},
				{Text: "or give its consumers an inbox"},
			},
			Evidence: "max_attempts, backoff, attempt_timeout and lease_ttl of the configuration",
		}}, nil
	}}
}

// longestRetries is how long after its first attempt a message may be sent for the last time, plus the time until another process
// continues after a crash.
func longestRetries(r config.Relay) time.Duration {
	attempts, base, most := r.MaxAttempts, r.BackoffBase, r.BackoffMax
	if attempts == 0 {
		attempts = relay.DefaultMaxAttempts
	}
	if base == 0 {
		base = relay.DefaultBackoffBase
	}
	if most == 0 {
		most = relay.DefaultBackoffMax
	}
	total := 15 * time.Second
	if r.LeaseTTL > 0 {
		total = r.LeaseTTL
	}
	wait := base
	for range min(attempts, 1000) - 1 {
		total += min(wait, most)
		wait = min(2*wait, most)
	}
	return total
}
