package postgres

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	logEndSQL = `
select coalesce(max(f.seq), 0) from generate_series(0, {partitions}() - 1) as p cross join lateral (
	select l.seq from {log} l where l.partition = p::int2 order by l.seq desc limit 1) as f`

	logPositionSQL = `select coalesce(max(position), 0) from {cursors} where relay = $1::text`

	countAllParkedSQL = `select count(*)::int4 from (select from {parked} where relay = $1::text limit $2::int8) as p`

	// loggedSQL: $1 relay, after $2, up to $3, $4 sequences. The row of partition -1 has the end of the search. No index has the sequence
	// alone, so that each partition is asked for its first message, and then for those in one range of sequences.
	loggedSQL = `
with parts as materialized (
	select p::int2 as partition from generate_series(0, {partitions}() - 1) as p
), span as materialized (
	select min(f.seq) as first, least(min(f.seq) + $4::int8 - 1, $3::int8) as last from parts cross join lateral (
		select l.seq from {log} l where l.partition = parts.partition and l.seq > $2::int8 and l.seq <= $3::int8 order by l.seq limit 1) as f
), at as materialized (
	select parts.partition, c.position, c.snapshot from parts left join lateral (
		select position, snapshot from {cursors} c where c.relay = $1::text and c.partition = parts.partition order by c.n desc limit 1) as c on true
)
select coalesce(last, $3::int8) as seq, -1::int4 as partition, ''::text as id, ''::text as topic, ''::text as key, ''::text as type, ''::text as tenant,
	clock_timestamp() as created_at, false as delivered from span
union all
select l.seq, l.partition::int4, l.id, l.topic, l.key, l.type, l.tenant, l.created_at,
	coalesce(l.seq <= at.position and pg_visible_in_snapshot(l.xid, at.snapshot), false)
	and not exists (select from {parked} p where p.relay = $1::text and p.partition = l.partition and p.seq = l.seq)
	and not exists (select from {dead} d where d.relay = $1::text and d.partition = l.partition and d.seq = l.seq and d.state <> 'redriven')
from at cross join span cross join lateral (
	select * from {log} l where l.partition = at.partition and l.seq >= span.first and l.seq <= span.last offset 0) as l
order by seq`

	// keepReplayedSQL keeps messages from being erased until the transaction ends: its copies are erased after it, or there are none.
	keepReplayedSQL = `
with mine as materialized (select * from unnest($1::int2[], $2::int8[]) as m (part, number))
select from mine m cross join lateral (
	select from {log} l where l.partition = m.part and l.seq between m.number and m.number offset 0 for share) as l`

	// replayedKeysSQL holds the keys of messages: $1 relay, arrays: $2 partition, $3 sequence. It locks those that are held already.
	replayedKeysSQL = replayedSQL + `
insert into {held} (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
select $1::text, l.key, l.partition, min(l.seq), 'replayed', '', 0, clock_timestamp(), clock_timestamp()
from mine m cross join ` + inLogSQL + ` where l.key <> '' and ` + replayableSQL + ` group by l.key, l.partition order by l.key
on conflict (relay, key) do update set key = excluded.key where false`

	// parkReplayedSQL parks messages: $1 to $3 as above, $4 headers, $5 history entry.
	parkReplayedSQL = replayedSQL + `
insert into {parked} (relay, partition, {message}, reason, due_at, attempts, history, parked_at)
select $1::text, l.partition, {replayed}, 'replayed', case when l.key = '' then clock_timestamp() end, 0,
	jsonb_build_array(jsonb_build_object('attempt', 0, 'at', clock_timestamp(), 'cause', $5::text)), clock_timestamp()
from mine m cross join ` + inLogSQL + ` cross join lateral (
	select case when jsonb_typeof(l.headers) = 'object' then l.headers || $4::text::jsonb else l.headers end as added) as h
where ` + replayableSQL + ` order by l.seq on conflict (relay, partition, seq) do nothing`

	// replayableSQL: the settlements of the relay have ended, so that a message that was parked is parked still, or dead-lettered, or
	// delivered.
	replayableSQL = `l.type <> 'postrider.erased' and not exists (select from {dead} d
	where d.relay = $1::text and d.partition = l.partition and d.seq = l.seq and d.state <> 'redriven')`

	replayedSQL = `
with mine as materialized (select * from unnest($2::int2[], $3::int8[]) as m (part, number))`
)

// replayedColumns are the messageColumns with the headers of a replay.
var replayedColumns = strings.NewReplacer("{replayed}", strings.Replace(messageColumns, "headers", "h.added", 1))

// Logged implements store.LogReader.
func (r records) Logged(ctx context.Context, q store.LogQuery) (page store.LogPage, err error) {
	err = r.query(ctx, loggedSQL, []any{q.Relay, q.After, q.UpTo, int64(q.Limit)}, func(rows pgx.Rows) error {
		var m store.LoggedMessage
		_, err := pgx.ForEachRow(rows, []any{&m.Sequence, &m.Partition, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Tenant, &m.CreatedAt, &m.Delivered}, func() error {
			if m.Partition < 0 {
				page.Last = m.Sequence
				return nil
			}
			m.CreatedAt = m.CreatedAt.UTC()
			page.Messages = append(page.Messages, m)
			return nil
		})
		return err
	})
	return page, err
}

// LogEnd implements store.LogReader.
func (r records) LogEnd(ctx context.Context) (int64, error) { return onlyOf[int64](ctx, r, logEndSQL) }

// RelayLog implements store.LogReader.
func (r records) RelayLog(ctx context.Context, relay string) (out store.RelayLog, err error) {
	err = r.query(ctx, filtersSQL, nil, func(rows pgx.Rows) error {
		all, err := readFilters(rows)
		out.Topics = all[relay]
		return err
	})
	if err == nil {
		out.Position, err = onlyOf[int64](ctx, r, logPositionSQL, relay)
	}
	return out, err
}

// CountAllParked implements store.LogReader.
func (r records) CountAllParked(ctx context.Context, relay string, limit int) (int, error) {
	return onlyOf[int](ctx, r, countAllParkedSQL, relay, int64(limit))
}

// ParkReplayed implements store.LogWriter.
func (r records) ParkReplayed(ctx context.Context, m store.ReplayedMessages) (int, error) {
	headers, err := json.Marshal(m.Headers)
	if err != nil {
		return 0, err
	}
	var partitions []int16
	places, sequences := m.Places()
	for _, p := range places {
		partitions = append(partitions, int16(p))
	}
	if err := r.exec(ctx, lockLeaseSQL, m.Relay, places); err != nil {
		return 0, err
	}
	if err := r.exec(ctx, keepReplayedSQL, partitions, sequences); err != nil {
		return 0, err
	}
	if err := r.exec(ctx, replayedKeysSQL, m.Relay, partitions, sequences); err != nil {
		return 0, err
	}
	return r.count(ctx, replayedColumns.Replace(parkReplayedSQL), m.Relay, partitions, sequences, string(headers), oneText(m.Entry, maxCause))
}
