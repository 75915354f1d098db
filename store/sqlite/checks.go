package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/plain"
)

var _ doctor.Checker = (*Store)(nil)

// walBytes is how large the write-ahead log of a database may become that no reader holds back.
const walBytes = 1 << 30

// Checks implements doctor.Checker. A file has no clock, connections or roles of its own.
func (s *Store) Checks() []doctor.Check { return s.checks(walBytes) }

func (s *Store) checks(wal int64) []doctor.Check {
	path, err := s.path(context.Background())
	return []doctor.Check{
		{Name: "schema.version", Title: "This program and the schema match", Run: s.checkVersion},
		{Name: "schema.objects", Title: "No table or index of the outbox is missing", Run: s.checkObjects},
		{Name: "db.durability", Title: "The database keeps what it has committed", Run: s.checkDurability},
		{Name: "db.old_transaction", Title: "No transaction is open for long", Run: func(context.Context) ([]doctor.Finding, error) {
			if err != nil {
				return nil, err
			}
			return checkWAL(path, wal)
		}},
		doctor.Maintenance(s, nil),
		doctor.Disk(path),
	}
}

// path is the file of the database.
func (s *Store) path(ctx context.Context) (path string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	return path, err
}

func (s *Store) checkVersion(ctx context.Context) ([]doctor.Finding, error) {
	set, err := s.cfg.migrations()
	if err != nil {
		return nil, err
	}
	applied, err := s.versions(ctx)
	if err != nil {
		return nil, err
	}
	return doctor.SchemaVersion(s.cfg.Prefix+"migrations", set.Status(migrate.Records(applied))), nil
}

const objectsSQL = `SELECT type, CASE type WHEN 'index' THEN tbl_name ELSE '' END, name, coalesce(sql, '') FROM sqlite_schema
		WHERE type IN ('table', 'index') AND substr(name, 1, length(?1)) = ?1
	UNION ALL
	SELECT 'column', t.name, c.name, '' FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' AND substr(t.name, 1, length(?1)) = ?1
	ORDER BY 1, 2, 3`

//go:embed objects.txt
var objectsText string

// Objects returns what the file has of the outbox: the tests compare objects.txt with it. In definitions, {prefix} stands for the prefix.
func (s *Store) Objects(ctx context.Context) (out []doctor.Object, err error) {
	err = s.read(ctx, "read the catalog", func(t txn) error {
		out = nil
		return t.each(ctx, objectsSQL, []any{s.cfg.Prefix}, func(rows *sql.Rows) error {
			var o doctor.Object
			if err := rows.Scan(&o.Kind, &o.Table, &o.Name, &o.Definition); err != nil {
				return err
			}
			o.Table = strings.TrimPrefix(o.Table, s.cfg.Prefix)
			if o.Kind != "column" {
				o.Name = strings.TrimPrefix(o.Name, s.cfg.Prefix)
			}
			if o.Kind != "index" {
				o.Definition = ""
			}
			o.Definition = strings.ReplaceAll(strings.Join(strings.Fields(o.Definition), " "), s.cfg.Prefix, "{prefix}")
			out = append(out, o)
			return nil
		})
	})
	return out, err
}

func (s *Store) checkObjects(ctx context.Context) ([]doctor.Finding, error) {
	present, err := s.Objects(ctx)
	if err != nil {
		return nil, err
	}
	return doctor.MissingObjects(doctor.ParseObjects(objectsText), present, s.cfg.Prefix, s.expand), nil
}

func (s *Store) checkDurability(ctx context.Context) (out []doctor.Finding, err error) {
	var mode string
	var synchronous int
	if err := s.db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
		return nil, err
	}
	if err := s.db.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&synchronous); err != nil {
		return nil, err
	}
	if mode != "wal" {
		out = append(out, doctor.Finding{
			Level: doctor.Fault, Target: "the database", Message: fmt.Sprintf("The journal mode is %s, not WAL.", mode),
			Impact:   "Readers and the writer wait for each other, and fail.",
			Fix:      []doctor.Fix{{Text: "when no program uses the file:", Command: "PRAGMA journal_mode = WAL;"}},
			Evidence: "PRAGMA journal_mode",
		})
	}
	if synchronous == 0 {
		out = append(out, doctor.Finding{
			Level: doctor.Fault, Target: "the connections of this program", Message: "PRAGMA synchronous is OFF.",
			Impact:   "A power failure can damage the file.",
			Fix:      []doctor.Fix{{Text: "open the database with FULL where it is published, at least with NORMAL elsewhere:", Command: "_pragma=synchronous(full)"}},
			Evidence: "PRAGMA synchronous",
		})
	}
	return out, nil
}

// checkWAL finds a reader that never ends: the write-ahead log cannot be reused while it reads.
func checkWAL(path string, most int64) ([]doctor.Finding, error) {
	info, err := os.Stat(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || info.Size() < most {
		return nil, err
	}
	return []doctor.Finding{{
		Level: doctor.Warning, Target: path + "-wal", Message: fmt.Sprintf("The write-ahead log has %s.", plain.Bytes(info.Size())),
		Impact: "A program has kept a transaction open: the file grows until it ends, and reading becomes slower.",
		Fix: []doctor.Fix{
			{Text: "see which programs have it open, and end the one that reads:", Command: "fuser -v " + path},
			{Text: "then shrink it:", Command: "PRAGMA wal_checkpoint(TRUNCATE);"},
		},
		Evidence: "the size of the file",
	}}, nil
}
