package explain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/inspect"
)

// stores are the store that was selected, its name, and the others of the configuration.
type stores struct {
	*backend.Outbox
	name   string
	others []inspect.Source
}

// withStores opens the selected store, and the others when they are needed.
func (p commands) withStores(cmd *cobra.Command, f func(stores) error) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
	}
	return p.WithStoreOf(cmd, func(b *backend.Outbox, s config.Store, _ *slog.Logger) error {
		others := backend.OthersOf(c, s, logger)
		defer others.Close()
		return f(stores{b, b.StoreName(s), others.Sources()})
	})
}

// explanation is what --json writes.
type explanation struct {
	inspect.Explanation
	// Causation is what caused the message and what it caused.
	Causation *inspect.Causation `json:"causation,omitempty"`
}

// causation finds what caused a message and what it caused. Whoever may read the databases may see everything.
func (p commands) causation(ctx context.Context, in stores, o explainOptions) (*inspect.Causation, error) {
	service := admin.New(in.Outbox, admin.Config{
		Name: in.name, Others: in.others, Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}, Logger: slog.New(slog.DiscardHandler),
	})
	c, err := service.Causation(ctx, p.Principal(""), o.id, inspect.CausationSearch{Thorough: o.thorough})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // the message was explained
		fmt.Fprintln(p.Stderr, "postrider: causes and effects could not be searched for in time; try again, or with --thorough")
		return nil, nil //nolint:nilnil // there are none to show
	}
	if err != nil {
		return nil, fmt.Errorf("search for causes and effects: %w", err)
	}
	return &c, nil
}

// writeCausation writes a chain of causes and effects, if there is one.
func (p commands) writeCausation(c *inspect.Causation, here string, o explainOptions) {
	if c == nil {
		return
	}
	if len(c.Causes) > 0 {
		fmt.Fprintln(p.Stdout, "\ncaused by")
		for _, l := range slices.Backward(c.Causes) {
			p.writeLinked(l, here, 1)
		}
	}
	if len(c.Effects) > 0 {
		fmt.Fprintln(p.Stdout, "\ncaused")
		p.writeEffects(c.Effects, c.More, here, 1)
	}
	if c.Complete {
		return
	}
	fmt.Fprintln(p.Stdout, "\ncauses and effects are not complete")
	for _, g := range c.Incomplete {
		text := g.Text
		if g.Err != nil {
			text = strings.TrimSuffix(text, ".") + ": " + g.Err.Error()
		}
		fmt.Fprintln(p.Stdout, "  "+output.Printable(text))
	}
	if !o.thorough {
		fmt.Fprintln(p.Stdout, "  to search longer: "+p.Hint("explain %s --thorough", output.ShellQuote(o.id)))
	}
}

func (p commands) writeEffects(list []inspect.Linked, more int, here string, depth int) {
	for _, l := range list {
		p.writeLinked(l, here, depth)
		p.writeEffects(l.Effects, l.More, here, depth+1)
	}
	if more > 0 {
		fmt.Fprintf(p.Stdout, "%sand %s more\n", strings.Repeat("  ", depth), output.Number(more))
	}
}

// writeLinked writes a message of a chain in a line.
func (p commands) writeLinked(l inspect.Linked, here string, depth int) {
	line := []string{l.ID, l.Type}
	if l.Key != "" {
		line = append(line, "key", l.Key)
	}
	if !l.StoredAt.IsZero() {
		line = append(line, output.Moment(l.StoredAt))
	}
	if l.Store != here {
		line = append(line, "in", l.Store)
	}
	if l.DeadLetter > 0 {
		text := fmt.Sprintf("dead letter %d", l.DeadLetter)
		if l.DeadIn != here {
			text += " in " + l.DeadIn
		}
		line = append(line, text)
	}
	fmt.Fprintln(p.Stdout, strings.Repeat("  ", depth)+output.Printable(strings.Join(line, "  ")))
}
