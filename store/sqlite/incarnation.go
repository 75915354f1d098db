package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/postrider/postrider/store"
)

// incarnation is the file as this Store found it. A lease granted in another file, of which this one is a copy, does not hold
// here.
type incarnation struct {
	path string // "" for a database without a file
	info fs.FileInfo
	text string // as stored in the rows of leases
}

const pathSQL = `SELECT file FROM pragma_database_list WHERE name = 'main'`

// findIncarnation records which file the database is.
func (s *Store) findIncarnation(ctx context.Context) error {
	var path string
	if err := s.db.QueryRowContext(ctx, pathSQL).Scan(&path); err != nil {
		return err
	}
	s.incarnation = incarnation{path: path, text: "no file"}
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("find out which file the database is: %w", err)
	}
	s.incarnation.info, s.incarnation.text = info, identity(info)
	return nil
}

// replaced fails if the path leads to another file than the one that was opened: new connections would reach another database
// than the open ones.
func (i *incarnation) replaced() error {
	if i.path == "" {
		return nil
	}
	switch now, err := os.Stat(i.path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the file %s was moved away or removed", store.ErrReplaced, i.path)
	case err != nil:
		return fmt.Errorf("compare the database's file with the one that was opened: %w", err)
	case !os.SameFile(now, i.info):
		return fmt.Errorf("%w: %s is another file now", store.ErrReplaced, i.path)
	}
	return nil
}

const (
	beginFileSQL = `UPDATE {prefix}incarnation SET file = ?1, began_at = ?2 WHERE file <> ?1`
	beganAtSQL   = `SELECT began_at FROM {prefix}incarnation`
)

// beginFile records when this file was first used, unless that is recorded already.
func (t txn) beginFile(ctx context.Context) error {
	_, err := t.exec(ctx, beginFileSQL, t.s.incarnation.text, t.now)
	return err
}
