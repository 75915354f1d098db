package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/itest/process"
)

// postgresSettings make the private PostgreSQL durable and of moderate size. They are part of the report.
var postgresSettings = []string{
	"fsync=on",
	"synchronous_commit=on",
	"full_page_writes=on",
	"shared_buffers=1GB",
	"max_wal_size=4GB",
	"min_wal_size=3GB", // segments are recycled: zeroing new ones causes much of the noise
	"wal_level=logical",
	"max_connections=200",
	"autovacuum_naptime=1min",
	"shared_preload_libraries=pg_stat_statements",
}

// world holds the servers that the suites share, each started on first use.
type world struct {
	options  options
	progress io.Writer
	dir      string
	version  map[string]string

	postgres    *process.Server // nil for an external server
	nats        *process.Server // likewise
	postgresURL string
	natsURL     string
	kafkaURL    string
	servers     []*process.Server
	databases   int // created so far
}

func newWorld(o options, progress io.Writer) (*world, error) {
	dir, err := os.MkdirTemp(o.dir, "postrider-bench-*")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user and needs access
		return nil, err
	}
	return &world{options: o, progress: progress, dir: dir, postgresURL: o.postgres, natsURL: o.nats, version: make(map[string]string)}, nil
}

// close stops the servers and removes their data.
func (w *world) close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// startPostgres returns the URL of a PostgreSQL server's superuser.
func (w *world) startPostgres(ctx context.Context) (string, error) {
	if w.postgresURL != "" {
		return w.postgresURL, nil
	}
	s, err := process.StartPostgres(ctx, w.dir, postgresSettings...)
	if err != nil {
		return "", err
	}
	w.postgres, w.postgresURL = s, s.URL
	w.servers = append(w.servers, s)
	if w.options.quick {
		return s.URL, nil
	}
	// Write the WAL once in full, so that its files exist and can be reused.
	return s.URL, w.inPostgres(ctx, s.URL, `select pg_logical_emit_message(false, 'bench', repeat('x', 1000000)) from generate_series(1, 2500)`, `checkpoint`)
}

// inPostgres runs statements on a separate connection.
func (w *world) inPostgres(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, st := range statements {
		if _, err := conn.Exec(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	return nil
}

// startNATS returns the URL of a NATS server with JetStream.
func (w *world) startNATS(ctx context.Context) (string, error) {
	if w.natsURL != "" {
		return w.natsURL, nil
	}
	bin, err := w.findNATS()
	if err != nil {
		return "", err
	}
	s, err := process.StartNATS(ctx, bin, w.dir, 0)
	if err != nil {
		return "", err
	}
	w.nats, w.natsURL = s, s.URL
	w.servers = append(w.servers, s)
	out, err := exec.CommandContext(ctx, bin, "--version").Output()
	w.version["nats-server"] = strings.TrimPrefix(strings.TrimSpace(string(out)), "nats-server: ")
	return s.URL, err
}

func (w *world) findNATS() (string, error) {
	for _, path := range []string{w.options.natsBin, os.Getenv("POSTRIDER_TEST_NATS_BIN"), filepath.Join(".cache", "bin", "nats-server")} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return filepath.Abs(path)
		}
	}
	path, err := exec.LookPath("nats-server")
	if err != nil {
		return "", errors.New("nats-server is not found; run make bench, which builds it, or name it with -nats-server")
	}
	return path, nil
}

// describe fills in the machine, the versions and the settings.
func (w *world) describe(ctx context.Context, r *report.Report) error {
	r.Machine = report.ThisMachine(processor(), memoryMiB())
	r.Versions = w.version
	maps.Copy(r.Versions, moduleVersions())
	if w.postgresURL == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, w.postgresURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	r.Settings = make(map[string]string)
	r.Versions["PostgreSQL"] = conn.PgConn().ParameterStatus("server_version")
	for _, s := range postgresSettings {
		name, _, _ := strings.Cut(s, "=")
		var value string
		if err := conn.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		r.Settings["PostgreSQL "+name] = cmp.Or(value, "(empty)")
	}
	return nil
}
