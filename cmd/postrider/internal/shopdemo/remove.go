package shopdemo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// remove removes what the demo has created on servers: the schemas, and what is at the broker. Files stay in the folder.
func (w *world) remove(ctx context.Context) error {
	var errs []error
	if w.cfg.Store != "" {
		for name, db := range w.dbs {
			schema := w.cfg.schema(name)
			if db.close == nil { // it was not opened
				continue
			}
			if _, err := db.DB.ExecContext(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`); err != nil {
				errs = append(errs, fmt.Errorf("remove the schema %s: %w; remove it by hand", schema, err))
			}
		}
	}
	if w.others {
		broker, err := siteOf(w.cfg.Publisher, w.cfg.Name, slog.New(slog.DiscardHandler))
		if err == nil {
			err = broker.remove(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
