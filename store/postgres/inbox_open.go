package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

var _ inbox.Opener[pgx.Tx] = (*Store)(nil)

// BeginClaim implements inbox.Opener.
func (s *Store) BeginClaim(ctx context.Context, consumer string, msgs []inbox.Candidate) (pgx.Tx, []inbox.Standing, error) {
	if len(msgs) == 0 {
		tx, err := s.Begin(ctx)
		return tx, nil, err
	}
	claim := s.newClaim(consumer, msgs)
	tx, err := s.beginWith(ctx, claim.queries...)
	if err != nil {
		return nil, nil, translate("begin and claim messages", err)
	}
	return tx, claim.standings(), nil
}

// BeginWatermark implements inbox.Opener.
func (s *Store) BeginWatermark(ctx context.Context, consumer string, at postrider.Position) (pgx.Tx, inbox.Watermark, error) {
	var w inbox.Watermark
	lock := query{sql: s.sql.lockMark, args: []any{consumer, at.Partition, at.Epoch}}
	tx, err := s.beginWith(ctx, lock, s.readMark(consumer, at, &w))
	if err != nil {
		return nil, w, translate("begin and read a watermark", err)
	}
	if w.Known {
		return tx, w, nil
	}
	if w, err = s.Watermark(ctx, tx, consumer, at); err != nil { // there is none to lock yet: once for each log
		return nil, w, errors.Join(err, s.Rollback(context.WithoutCancel(ctx), tx))
	}
	return tx, w, nil
}

// beginWith begins a transaction and runs queries in it, in one round trip. After an error there is none.
func (s *Store) beginWith(ctx context.Context, queries ...query) (pgx.Tx, error) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for _, q := range queries {
		batch.Queue(q.sql, q.args...)
	}
	results := s.pool.SendBatch(ctx, batch)
	_, err := results.Exec()
	for i := 0; i < len(queries) && err == nil; i++ {
		err = queries[i].read(results)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	tx := results.Tx()
	if err != nil {
		return nil, errors.Join(err, s.Rollback(context.WithoutCancel(ctx), tx))
	}
	return tx, nil
}
