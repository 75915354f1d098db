package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/postrider/postrider/config"
)

// Temporary is a private outbox in a database, to be removed after use.
type Temporary struct {
	*Outbox
	// TablePrefix is the prefix for the names of the caller's own tables; it may include a schema.
	TablePrefix string
	// QuestionMarks says that the database uses ? for parameters, not $1.
	QuestionMarks bool
	// Remove closes and removes the outbox.
	Remove func() error
}

// OpenTemporary creates a private outbox:
//
//   - PostgreSQL: in a new schema with the given name, which Remove drops.
//   - MySQL: in a new database with that name.
//   - SQLite: in a file that must not exist, and that stays if the caller chose its path.
func OpenTemporary(ctx context.Context, s config.Store, name string, logger *slog.Logger) (*Temporary, error) {
	l, err := locate(s)
	if err != nil {
		return nil, err
	}
	t := &Temporary{}
	remove := func() error { return nil }
	switch l.kind {
	case kindSQLite:
		if _, err := os.Stat(l.dsn); err == nil {
			return nil, fmt.Errorf("%s exists; give a file that does not, so that nothing of yours is touched", l.shown)
		}
		t.TablePrefix = "shop_"
	case kindPostgres:
		if remove, err = createSchema(ctx, l, name); err != nil {
			return nil, err
		}
		s.Schema, s.Prefix = name, ""
		t.TablePrefix = name + ".shop_"
	case kindMySQL:
		var in location
		if in, remove, err = createDatabase(ctx, l, name); err != nil {
			return nil, err
		}
		s.URL, s.Prefix = in.dsn, ""
		t.TablePrefix, t.QuestionMarks = "shop_", true
	}
	if err := t.fill(ctx, s, logger); err != nil {
		return nil, errors.Join(err, remove())
	}
	t.Remove = func() error {
		t.Close()
		return remove()
	}
	return t, nil
}

// fill creates the tables and opens the outbox.
func (t *Temporary) fill(ctx context.Context, s config.Store, logger *slog.Logger) error {
	schema, err := OpenSchema(ctx, s, true, logger)
	if err != nil {
		return err
	}
	defer schema.Close()
	if _, err := schema.Migrate(ctx, Latest); err != nil {
		return fmt.Errorf("create the outbox in %s: %w", schema.Shown, err)
	}
	t.Outbox, err = Open(ctx, s, logger)
	return err
}
