package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// consumersSQL: $1 the limit of the count.
	consumersSQL = `
select c.relay, (select count(*) from (select 1 from {claims} m where m.consumer = c.relay limit $1::int8) as m),
	coalesce((select (extract(epoch from clock_timestamp() - m.claimed_at) operator(pg_catalog.*) 1000000)::int8 from {claims} m
		where m.consumer = c.relay order by m.claimed_at limit 1), 0)
from (` + consumerNamesSQL + `) as c order by c.relay`

	// marksSQL: the state of a watermark is its newest move.
	marksSQL = `
select w.consumer, w.partition, w.epoch, m.position, (extract(epoch from clock_timestamp() - m.moved_at) operator(pg_catalog.*) 1000000)::int8
from {watermarks} w cross join lateral (
	select m.position, m.moved_at from {watermark_moves} m where m.consumer = w.consumer and m.partition = w.partition and m.epoch = w.epoch
	order by m.n desc limit 1) as m
order by w.consumer, w.partition collate "C", w.epoch collate "C"`
)

// Consumers implements store.StatusReader.
func (s *Store) Consumers(ctx context.Context) ([]store.ConsumerStatus, error) {
	if _, err := s.open(ctx); err != nil {
		return nil, err
	}
	var out []store.ConsumerStatus
	rows, err := s.pool.Query(ctx, s.names.expand(consumersSQL), int64(store.CountLimit+1))
	if err != nil {
		return nil, translate("status of consumers", err)
	}
	places := make(map[string]int)
	var name string
	var n, oldest int64
	_, err = pgx.ForEachRow(rows, []any{&name, &n, &oldest}, func() error {
		places[name] = len(out)
		out = append(out, store.ConsumerStatus{
			Name: name, Oldest: time.Duration(oldest) * time.Microsecond, Remembered: stored.Count(n),
		})
		return nil
	})
	if err != nil {
		return nil, translate("status of consumers", err)
	}
	if rows, err = s.pool.Query(ctx, s.names.expand(marksSQL)); err != nil {
		return nil, translate("status of consumers", err)
	}
	var w store.WatermarkStatus
	var moved int64
	_, err = pgx.ForEachRow(rows, []any{&name, &w.Partition, &w.Incarnation, &w.Offset, &moved}, func() error {
		w.Moved = time.Duration(moved) * time.Microsecond
		if i, known := places[name]; known {
			out[i].Watermarks = append(out[i].Watermarks, w)
		}
		return nil
	})
	return out, translate("status of consumers", err)
}
