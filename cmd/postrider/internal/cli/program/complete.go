package program

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// completionTime is how long completion may take. A shell waits for it at the prompt.
const completionTime = 2 * time.Second

// maxCompletions is how many values completion offers at most.
const maxCompletions = 100

// Completer lists values that a store has, each optionally followed by a tab and a description.
type Completer func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error)

// CompleteFlag adds completion of a flag with values from the store.
func (p *Program) CompleteFlag(cmd *cobra.Command, flag string, list Completer) {
	if err := cmd.RegisterFlagCompletionFunc(flag, p.complete(list)); err != nil {
		panic("postrider: completion of a flag that does not exist: " + flag)
	}
}

// CompleteArgs adds completion of arguments with values from the store: of at most n, or of any number for 0.
func (p *Program) CompleteArgs(cmd *cobra.Command, n int, list Completer) {
	complete := p.complete(list)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// complete reads the values from the store that flags, environment and configuration select. Errors mean no values: there
// is no place to show them.
func (p *Program) complete(list Completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		c, _, err := config.Read(p.configFile, p.Environ, p.StoreFlag != "")
		if err != nil {
			return nil, directive
		}
		s, err := p.SelectStore(c)
		if err != nil {
			return nil, directive
		}
		b, err := backend.Open(ctx, s, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, directive
		}
		defer b.Close()
		all, err := list(ctx, b)
		if err != nil {
			return nil, directive
		}
		var out []cobra.Completion
		for _, value := range all {
			name, _, _ := strings.Cut(value, "\t")
			if strings.HasPrefix(name, begun) && !slices.Contains(args, name) {
				out = append(out, value)
			}
		}
		return out, directive
	}
}

// Relays lists the names of relays and consumers.
func Relays(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	status, err := b.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []cobra.Completion
	for _, r := range status.Relays {
		out = append(out, cobra.CompletionWithDesc(r.Name, string(r.Kind)))
	}
	return out, nil
}

// ConsumersOnly lists the names of consumers.
func ConsumersOnly(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	status, err := b.Status(ctx)
	return slices.Sorted(maps.Keys(Consumers(status))), err
}

// DeadLetters lists the numbers of dead letters in a state, with type, key and cause.
func DeadLetters(state store.DeadState) Completer {
	return func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
		var out []cobra.Completion
		for d, err := range deadletter.New(b).ListDead(ctx, store.DeadFilter{State: state}, 0, maxCompletions) {
			if err != nil {
				return nil, err
			}
			text := strings.TrimSpace(d.Message.Type + " " + d.Message.Key)
			out = append(out, describe(d.Number, text+": "+d.Cause))
		}
		return out, nil
	}
}

// Redrives lists the IDs of redrives in a state, the latest first; "" for all.
func Redrives(state store.RedriveState) Completer {
	return func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
		var out []cobra.Completion
		for r, err := range deadletter.New(b).ListRedrives(ctx, state) {
			if err != nil {
				return nil, err
			}
			if out = append(out, describe(r.ID, fmt.Sprintf("%s, by %s", r.State, r.By))); len(out) == maxCompletions {
				break
			}
		}
		return out, nil
	}
}

// Sagas lists the IDs of instances of sagas that have not ended, with saga, status and key.
func Sagas(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	list, err := b.ListSagas(ctx, store.SagaFilter{Status: store.OpenSagaStatuses}, "", maxCompletions)
	var out []cobra.Completion
	for _, s := range list {
		out = append(out, cobra.CompletionWithDesc(s.ID, strings.TrimSpace(fmt.Sprint(s.Saga, " ", s.Status, " ", s.Key))))
	}
	return out, err
}

// SagaSteps lists the steps that instances of sagas wait for.
func SagaSteps(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	list, err := b.ListSagas(ctx, store.SagaFilter{Status: store.OpenSagaStatuses}, "", maxCompletions)
	var out []cobra.Completion
	for _, s := range list {
		for path := range strings.SplitSeq(s.Waiting, ", ") {
			if path != "" && !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	return out, err
}

// SagaNames lists the sagas that the store has definitions of.
func SagaNames(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
	definitions, err := b.SagaDefinitions(ctx)
	var out []cobra.Completion
	for _, d := range definitions {
		if !slices.Contains(out, d.Saga) {
			out = append(out, d.Saga)
		}
	}
	return out, err
}

// HeldKeys lists the keys that a relay holds; all held keys for the name "".
func HeldKeys(relay *string) Completer {
	return func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
		var out []cobra.Completion
		for h, err := range held.New(b).ListHeld(ctx, *relay) {
			if err != nil {
				return nil, err
			}
			if strings.ContainsAny(h.Key, "\t\n") {
				continue // a shell would take the rest for something else
			}
			if out = append(out, cobra.CompletionWithDesc(h.Key, output.Printable(h.Relay))); len(out) == maxCompletions {
				break
			}
		}
		return out, nil
	}
}

// ParkedMessages lists the IDs of a relay's parked messages that wait by themselves; those of all relays for the name "".
func ParkedMessages(relay *string) Completer {
	return func(ctx context.Context, b *backend.Outbox) ([]cobra.Completion, error) {
		var out []cobra.Completion
		for m, err := range held.New(b).ListParked(ctx, *relay) {
			if err != nil {
				return nil, err
			}
			text := fmt.Sprintf("%s, %s: %s", m.Relay, m.Reason, m.Cause())
			out = append(out, cobra.CompletionWithDesc(m.Message.ID, output.Shorten(output.Printable(text), 60)))
			if len(out) == maxCompletions {
				break
			}
		}
		return out, nil
	}
}

// describe is a completion with a short description.
func describe(number int64, text string) cobra.Completion {
	return cobra.CompletionWithDesc(strconv.FormatInt(number, 10), output.Shorten(output.Printable(text), 60))
}
