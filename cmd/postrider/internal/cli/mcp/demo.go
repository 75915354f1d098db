package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/mcpdemo"
	"github.com/postrider/postrider/cmd/postrider/internal/mcpserver"
	"github.com/postrider/postrider/cmd/postrider/internal/serving"
	"github.com/postrider/postrider/config"
)

// demo answers an agent about an outbox that it makes, and removes at the end. People sign in to its web UI to approve plans.
func (p commands) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "postrider-mcp-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	world, err := mcpdemo.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	quiet := slog.New(slog.DiscardHandler)
	site, err := serving.Start(ctx, world.Outbox, serving.Options{
		Admin: config.Admin{Listen: "127.0.0.1:0", Environment: "Demo", Show: []config.Show{{Type: "*", All: true, Headers: []string{"*"}, Causes: true, Keys: "viewer"}}},
		Name:  "shop", Principal: admin.Principal{Subject: p.Operator(), Role: admin.Admin}, PrintTo: p.Stderr, Version: program.ReadBuild().Version,
	}, quiet)
	if err != nil {
		return err
	}
	defer site.Close()
	service := admin.New(world.Outbox, admin.Config{Name: "shop", Logger: quiet, Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}})
	reads, err := web.New(service, web.Config{Logger: quiet})
	if err != nil {
		return err
	}
	server := mcpserver.New(service, reads, site.URL, program.ReadBuild().Version)
	server.Demonstrate(world)
	return server.Serve(ctx, admin.Principal{Issuer: "demo", Subject: "agent", Role: admin.Operator, Via: admin.ViaAgent}, p.Stdin, p.Stdout)
}
