package shopdemo

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

// remove removes what the demo has created on servers: the schemas and the stream. Files stay in the folder.
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
	if w.ownStream {
		if err := w.removeStream(ctx); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("remove the stream %s: %w; remove it by hand: nats stream rm %s", w.cfg.Name, err, w.cfg.Name))
		}
	}
	return errors.Join(errs...)
}

// removeStream uses the connection of a publisher, which supports all authentication options.
func (w *world) removeStream(ctx context.Context) error {
	url, cfg, err := natsbroker.ParseURL(w.cfg.Publisher, natsbroker.Config{})
	if err != nil {
		return err
	}
	connected := make(chan *nats.Conn, 1)
	cfg.Stream, cfg.Options = w.cfg.Name, append(cfg.Options, nats.ConnectHandler(func(c *nats.Conn) { connected <- c }))
	p, err := natsbroker.Open(ctx, url, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	select {
	case conn := <-connected:
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		return js.DeleteStream(ctx, w.cfg.Name)
	case <-ctx.Done():
		return ctx.Err()
	}
}
