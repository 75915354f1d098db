package redrive

import (
	"context"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// Drive drives a redrive in a store that a test prepared.
func Drive(ctx context.Context, p *program.Program, b *backend.Outbox, r store.Redrive) error {
	return commands{p}.drive(ctx, b, r, false)
}
