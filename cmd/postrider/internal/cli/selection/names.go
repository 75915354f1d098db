package selection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

// ownReasons are the reasons that relays, consumers and publishers set; handlers set others.
var ownReasons = []string{
	inbox.AttemptsExhausted, postrider.Undecodable, inbox.VersionGap,
	"too large for the broker", "too large for the receiver", "refused by the receiver",
}

// Mistyped is called when a filter matches nothing: it returns an error if the filter names an unknown relay, consumer or
// reason.
func Mistyped(ctx context.Context, b *backend.Outbox, f store.DeadFilter) error {
	if f.Relay != "" {
		n, err := deadletter.New(b).CountDead(ctx, store.DeadFilter{Relay: f.Relay, State: store.DeadAny})
		if err == nil && n == 0 {
			err = program.KnownRelay(ctx, b, f.Relay)
		}
		if err != nil {
			return err
		}
	}
	if f.Reason == "" || slices.Contains(ownReasons, f.Reason) {
		return nil
	}
	n, err := deadletter.New(b).CountDead(ctx, store.DeadFilter{Reason: f.Reason, State: store.DeadAny})
	if err != nil || n > 0 {
		return err
	}
	counts, err := deadletter.New(b).CountCauses(ctx, store.DeadFilter{State: store.DeadAny}, 100)
	if err != nil {
		return err
	}
	known := slices.Clone(ownReasons)
	for _, c := range counts.Causes {
		known = append(known, c.Reason)
	}
	slices.Sort(known)
	return fmt.Errorf("no message was dead-lettered for the reason %q here; those that there are, or may be: %s", f.Reason,
		output.Printable(strings.Join(slices.Compact(known), ", ")))
}
