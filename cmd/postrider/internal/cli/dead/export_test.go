package dead

import (
	"context"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/store"
)

// Discard discards dead letters in a store that a test prepared.
func Discard(ctx context.Context, p *program.Program, b *backend.Outbox, s *selection.Selection, f store.DeadFilter, batch int) error {
	return commands{p}.discard(ctx, b, s, f, batch)
}
