package program

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/store"
)

// RelayNames returns the names of all relays and consumers.
func RelayNames(ctx context.Context, b *backend.Outbox) (names []string, err error) {
	status, err := b.Status(ctx)
	for _, r := range status.Relays {
		names = append(names, r.Name)
	}
	return names, err
}

// KnownRelay returns an error, listing the known names, if the store has no relay or consumer of this name.
func KnownRelay(ctx context.Context, b *backend.Outbox, name string) error {
	known, err := RelayNames(ctx, b)
	if err != nil || slices.Contains(known, name) {
		return err
	}
	slices.Sort(known)
	return fmt.Errorf("there is no relay or consumer %q in this store; it has %s", name,
		cmp.Or(output.Printable(strings.Join(slices.Compact(known), ", ")), "none yet: one appears when it first runs"))
}

// ConsumerNames tells consumers from relays; store.Status lists both.
type ConsumerNames map[string]bool

// Title is the display name of a relay or consumer.
func (c ConsumerNames) Title(name string) string {
	if c[name] {
		return "consumer " + output.Printable(name)
	}
	return "relay " + output.Printable(name)
}

// Consumers returns the names of the consumers in a status.
func Consumers(s store.Status) ConsumerNames {
	out := make(ConsumerNames)
	for _, r := range s.Relays {
		if r.Kind == store.KindConsumer {
			out[r.Name] = true
		}
	}
	return out
}

// ChosenRelays returns the relay with a name, all for "".
func ChosenRelays(all []store.RelayStatus, name string) ([]store.RelayStatus, error) {
	if name == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(r store.RelayStatus) bool { return r.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no relay %q in this outbox; it has %s", name, relayNames(all))
	}
	return all[i : i+1], nil
}

func relayNames(all []store.RelayStatus) string {
	if len(all) == 0 {
		return "none yet: a relay appears when it first runs"
	}
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Name
	}
	return strings.Join(names, ", ")
}
