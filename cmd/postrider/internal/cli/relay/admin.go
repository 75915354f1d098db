package relay

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/serving"
	"github.com/postrider/postrider/config"
)

// serveAdmin serves the administration of the store of all relays, if it has an address, until the returned function is called.
func (p commands) serveAdmin(ctx context.Context, c *config.Config, units []*unit, e *exported, logger *slog.Logger) (closeIt func(), err error) {
	if c.Admin.Listen == "" || len(units) == 0 {
		return func() {}, nil
	}
	b := units[0].outbox
	for _, u := range units {
		if u.outbox != b {
			return nil, program.Usagef("the administration is of one store, and these relays have several: choose relays of one with --only, or use postrider serve --store")
		}
	}
	s, _ := c.StoreOf(units[0].config)
	o := serving.Options{
		Admin: c.Admin, Name: b.StoreName(s), Version: program.ReadBuild().Version, Checks: b.ConfiguredChecks(c, s), Command: p.Complete, Publish: b.Publish,
		Principal: admin.Principal{Subject: p.Operator(), Role: serving.DefaultRole(b)},
	}
	if e != nil {
		o.AuditFailed = e.AuditFailed(storeName(s))
	}
	if _, terminal := p.Width(p.Stderr); terminal {
		o.PrintTo = p.Stderr
	}
	if err := o.Check(); err != nil {
		return nil, program.Usagef("%v", err)
	}
	others := backend.OthersOf(c, s, logger)
	o.Others = others.Sources()
	server, err := serving.Start(ctx, b, o, logger)
	if err != nil {
		others.Close()
		return nil, err
	}
	logger.Info("serving the administration", "url", server.URL, "store", b.Shown)
	return func() {
		server.Close()
		others.Close()
	}, nil
}
