package program

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/config"
)

// Load reads the configuration and applies the common flags.
func (p *Program) Load() (*config.Config, *slog.Logger, error) {
	c, warnings, err := config.Read(p.configFile, p.Environ, p.StoreFlag != "")
	if err != nil {
		return nil, nil, err
	}
	if p.logLevel != "" {
		c.Log.Level = p.logLevel
	}
	if p.logFormat != "" {
		c.Log.Format = p.logFormat
	}
	logger := p.logger(c.Log)
	backend.LogLibraries(logger)
	for _, w := range warnings {
		logger.Warn(w)
	}
	return c, logger, nil
}

func (p *Program) logger(l config.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: map[config.Level]slog.Level{
		"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(p.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.Stderr, options))
}

// SelectStore returns the one store that an operator's command works on.
func (p *Program) SelectStore(c *config.Config) (config.Store, error) {
	stores := c.AllStores()
	if p.StoreFlag == "" {
		switch len(stores) {
		case 1:
			return stores[0], nil
		case 0:
			return config.Store{}, Usagef("no store is given; use --store sqlite:FILE, postgres://… or mysql://…, POSTRIDER_STORE_URL or store.url in --config")
		}
		return config.Store{}, Usagef("the configuration has several stores; choose one with --store: %s", StoreNames(stores))
	}
	for _, s := range stores {
		if s.Name != "" && s.Name == p.StoreFlag {
			return s, nil
		}
	}
	if !strings.Contains(p.StoreFlag, ":") {
		shown := p.StoreFlag
		if !mayBeName(shown) {
			shown = "…"
		}
		hint := ""
		if mayBeName(p.StoreFlag) && isFile(p.StoreFlag) {
			hint = "; for the SQLite file of this name: --store " + output.ShellQuote("sqlite:"+p.StoreFlag)
		}
		return config.Store{}, Usagef("--store %s is neither a URL nor the name of a store in the configuration (%s)%s", shown, StoreNames(stores), hint)
	}
	if len(stores) == 1 { // the flag replaces the URL; the other settings of the store stay
		stores[0].URL = p.StoreFlag
		return stores[0], nil
	}
	return config.Store{URL: p.StoreFlag}, nil
}

// mayBeName reports whether the value of --store may be a name, and so no password: it is no URL, and no keywords with values.
func mayBeName(text string) bool { return !strings.ContainsAny(text, ":= '") }

// isFile reports whether a text names a file that exists or looks like one of SQLite.
func isFile(text string) bool {
	_, err := os.Stat(text)
	return err == nil || slices.Contains([]string{".db", ".db3", ".sqlite", ".sqlite3"}, filepath.Ext(text))
}

// StoreNames lists the names of stores, for errors.
func StoreNames(stores []config.Store) string {
	var out []string
	for _, s := range stores {
		if s.Name != "" {
			out = append(out, s.Name)
		}
	}
	if len(out) == 0 {
		return "none there"
	}
	return strings.Join(out, ", ")
}

// WithStore opens the store that flags, environment and configuration select, and runs f on it.
func (p *Program) WithStore(cmd *cobra.Command, f func(*backend.Outbox) error) error {
	return p.WithStoreOf(cmd, func(b *backend.Outbox, _ config.Store, _ *slog.Logger) error { return f(b) })
}

// WithStoreOf is WithStore for commands that also use the store's settings, or log.
func (p *Program) WithStoreOf(cmd *cobra.Command, f func(*backend.Outbox, config.Store, *slog.Logger) error) error {
	c, logger, err := p.Load()
	if err != nil {
		return err
	}
	s, err := p.SelectStore(c)
	if err != nil {
		return err
	}
	o, err := backend.Open(cmd.Context(), s, logger)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(o, s, logger)
}
