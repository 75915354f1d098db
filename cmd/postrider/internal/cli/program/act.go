package program

import (
	"context"
	"log/slog"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
)

// decisionWait is how long a command waits for a decision to be applied.
const decisionWait = time.Minute

// Principal is who acts through a command: the user of the operating system, under the name that --by gives. What it may do is up to
// its rights in the database.
func (p *Program) Principal(by string) admin.Principal {
	return admin.Principal{Issuer: "os", Subject: p.Operator(), Name: by, Role: admin.Admin, Via: admin.ViaCLI}
}

// service is that of a store. What cannot be recorded fails, and the command says so.
func service(b *backend.Outbox) *admin.Service {
	return admin.New(b, admin.Config{Logger: slog.New(slog.DiscardHandler)})
}

// Act carries out what a command changes, and puts it on record in the same transaction.
func (p *Program) Act(ctx context.Context, b *backend.Outbox, by string, c admin.Change, do func(held.Database) error) error {
	return service(b).Act(ctx, p.Principal(by), c, do)
}

// Decide records a decision about a held key or a parked message, and waits until it is applied.
func (p *Program) Decide(ctx context.Context, b *backend.Outbox, d store.Decision) (count int, err error) {
	err = p.Act(ctx, b, d.By, admin.Decided(d), func(db held.Database) (err error) {
		ctx, cancel := context.WithTimeout(ctx, decisionWait)
		defer cancel()
		d, err = held.Decide(ctx, db, d)
		return err
	})
	return d.Count, err
}

// Pause pauses a relay or consumer.
func (p *Program) Pause(ctx context.Context, b *backend.Outbox, q pause.Request) (store.Pause, error) {
	return service(b).PauseRelay(ctx, p.Principal(q.By), q.Relay, q.Reason, q.For)
}

// Resume ends the pause of a relay or consumer, and returns it.
func (p *Program) Resume(ctx context.Context, b *backend.Outbox, by, relay, reason string) (store.Pause, error) {
	return service(b).ResumeRelay(ctx, p.Principal(by), relay, reason)
}
