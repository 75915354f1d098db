package main

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
)

// bare is the cost of the round trips alone: the writer notifies a goroutine of its commit, which reads the row and
// passes it on. One writer cannot keep the pace everywhere, and with several a cursor would lose late commits, so the
// rows are read by number.
func (l *latency) bare(ctx context.Context) (report.Figures, error) {
	p := newPaced(l.rate, l.b.n)
	committed := make(chan int64, l.b.n)
	var reader sync.WaitGroup
	var readErr error
	reader.Go(func() { readErr = l.bareReader(ctx, p, committed) })
	err := p.publishAll(ctx, func(ctx context.Context, i int) error {
		var seq int64
		err := pgx.BeginFunc(ctx, l.b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertOrderSQL, customer, i); err != nil {
				return err
			}
			columns := handColumns(p.message(i))
			columns[0] = 0 // one partition, which the reader expects
			return tx.QueryRow(ctx, bareInsertSQL, append(columns, int64(i+1))...).Scan(&seq)
		})
		committed <- seq
		return err
	})
	close(committed)
	reader.Wait()
	if err == nil {
		err = readErr
	}
	if err != nil {
		return nil, err
	}
	return p.figures(ctx)
}

const (
	bareInsertSQL = `insert into hand_log (partition, id, topic, key, type, source, message_time, content_type, payload, aggregate_version)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning seq`
	bareFindSQL = `select seq, id, topic, key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
		content_type, headers, correlation_id, causation_id, payload, created_at
		from hand_log where partition = 0 and seq = any($1)`
)

// bareReader reads the committed rows and passes them on.
func (l *latency) bareReader(ctx context.Context, p *paced, committed <-chan int64) error {
	conn, err := pgx.Connect(ctx, l.b.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for seq := range committed {
		seqs := []int64{seq}
		for len(committed) > 0 {
			seqs = append(seqs, <-committed)
		}
		rows, err := conn.Query(ctx, bareFindSQL, seqs)
		if err != nil {
			return err
		}
		for rows.Next() {
			var m postrider.Message
			var headers []byte
			if err := rows.Scan(&m.Sequence, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Source, &m.Subject, &m.Tenant, &m.Time, &m.SchemaVersion,
				&m.AggregateVersion, &m.ContentType, &headers, &m.CorrelationID, &m.CausationID, &m.Payload, &m.CreatedAt); err != nil {
				return err
			}
			p.handle(int(m.AggregateVersion - 1))
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
