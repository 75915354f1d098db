package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// erasedSQL empties the columns of messages that the log and the dead letters have in common: see store.Erased.
	erasedSQL = `key = '', type = 'postrider.erased', subject = '', tenant = '', schema_version = 0, aggregate_version = 0,
	content_type = 'application/octet-stream', headers = '{}', correlation_id = '', causation_id = '', payload = '', available_at = null`
	// erasableSQL is a store.EraseFilter: $1 key, $2 tenant, $3 message ID.
	erasableSQL = `type <> 'postrider.erased' and ($1::text = '' or key = $1::text) and ($2::text = '' or tenant = $2::text)
	and ($3::text = '' or id = $3::text)`

	// keepRelaysSQL keeps new relays from beginning, so that none reads a message between the next two statements.
	keepRelaysSQL = `lock table {relay_partitions} in share mode`
	// endUndeliveredSQL ends the leases of the relays that have not delivered one of the messages: arrays $1 partition, $2 sequence.
	endUndeliveredSQL = `
with mine as materialized (select * from unnest($1::int2[], $2::int8[]) as m (part, number)
), waiting as materialized (
	select distinct g.relay, g.partition from mine m cross join lateral (
		select l.seq, l.xid from {log} l where l.partition = m.part and l.seq between m.number and m.number) as l
	join {relay_partitions} g on g.partition = m.part and ` + kindSQL + ` = 'relay' cross join lateral (
		select position, snapshot from {cursors} c where c.relay = g.relay and c.partition = g.partition order by c.n desc limit 1) as c
	where not (l.seq <= c.position and pg_visible_in_snapshot(l.xid, c.snapshot))
), locked as materialized (
	select l.relay, l.partition from {leases} l join waiting w using (relay, partition) order by l.relay, l.partition for update of l
)
update {leases} l set token = '' from locked o where l.relay = o.relay and l.partition = o.partition`

	// eraseLoggedSQL: arrays $1 partition, $2 sequence.
	eraseLoggedSQL = `
update {log} l set ` + erasedSQL + ` from unnest($1::int2[], $2::int8[]) as m (part, number)
where l.partition = m.part and l.seq between m.number and m.number and l.type <> 'postrider.erased'`

	// eraseAttemptsSQL: $1 message IDs.
	eraseAttemptsSQL = `delete from {attempts} where message_id = any($1::text[])`

	// erasableParkedSQL: $4 limit.
	erasableParkedSQL = `select relay, partition, seq, key, id from {parked} where ` + erasableSQL + ` order by relay, partition, seq limit $4::int8`
	// endLeasesSQL: $1 relay, $2 partitions, which lockLeaseSQL has locked.
	endLeasesSQL = `update {leases} set token = '' where relay = $1::text and partition = any($2::int4[])`
	// eraseParkedSQL: $1 relay, arrays $2 partition, $3 sequence.
	eraseParkedSQL = `
delete from {parked} p using unnest($2::int4[], $3::int8[]) as m (part, number)
where p.relay = $1::text and p.partition = m.part and p.seq = m.number`

	// eraseDeadSQL: $4 limit.
	eraseDeadSQL = `
with mine as materialized (
	select number, id from {dead} where state <> 'open' and ` + erasableSQL + ` order by number limit $4::int8 for update
), edits as (
	delete from {dead_edits} e using mine m where e.number = m.number
), attempts as (
	delete from {attempts} a using mine m where a.message_id = m.id
)
update {dead} d set cause = '', fingerprint = '', history = '[]', edits = 0, ` + erasedSQL + ` from mine m where d.number = m.number`

	countErasableSQL = `select (select count(*) from {parked} where ` + erasableSQL + `), (select count(*) from {dead} where ` + erasableSQL + `)`
)

// EraseLogged implements store.EraseWriter.
func (r records) EraseLogged(ctx context.Context, messages []store.LoggedMessage) (int, error) {
	var partitions []int16
	var sequences []int64
	var ids []string
	for i := range messages {
		m := &messages[i]
		partitions, sequences, ids = append(partitions, int16(m.Partition)), append(sequences, m.Sequence), append(ids, m.ID)
	}
	if err := r.exec(ctx, keepRelaysSQL); err != nil {
		return 0, err
	}
	if err := r.exec(ctx, endUndeliveredSQL, partitions, sequences); err != nil {
		return 0, err
	}
	if err := r.exec(ctx, eraseAttemptsSQL, ids); err != nil {
		return 0, err
	}
	return r.count(ctx, eraseLoggedSQL, partitions, sequences)
}

// parkedPlace is where a parked message is.
type parkedPlace struct {
	relay     string
	partition int32
	sequence  int64
	key, id   string
}

// EraseParked implements store.EraseWriter.
func (r records) EraseParked(ctx context.Context, f store.EraseFilter, limit int) (out []store.ErasedParked, err error) {
	var found []parkedPlace
	err = r.query(ctx, erasableParkedSQL, []any{f.Key, f.Tenant, f.MessageID, int64(limit)}, func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p parkedPlace, err error) {
			return p, row.Scan(&p.relay, &p.partition, &p.sequence, &p.key, &p.id)
		})
		return err
	})
	for len(found) > 0 && err == nil {
		end := slices.IndexFunc(found, func(p parkedPlace) bool { return p.relay != found[0].relay })
		if end < 0 {
			end = len(found)
		}
		err = r.eraseParkedOf(ctx, found[0].relay, found[:end])
		for _, p := range found[:end] {
			out = append(out, store.ErasedParked{Relay: p.relay, Key: p.key})
		}
		found = found[end:]
	}
	return out, err
}

// eraseParkedOf removes parked messages of one relay.
func (r records) eraseParkedOf(ctx context.Context, relay string, places []parkedPlace) error {
	var partitions []int32
	var sequences []int64
	var ids []string
	for _, p := range places {
		partitions, sequences, ids = append(partitions, p.partition), append(sequences, p.sequence), append(ids, p.id)
	}
	for _, st := range []step{
		{sql: lockLeaseSQL, args: []any{relay, partitions}}, {sql: endLeasesSQL, args: []any{relay, partitions}},
		{sql: eraseParkedSQL, args: []any{relay, partitions, sequences}}, {sql: eraseAttemptsSQL, args: []any{ids}},
	} {
		if err := r.exec(ctx, st.sql, st.args...); err != nil {
			return err
		}
	}
	return nil
}

// EraseDead implements store.EraseWriter.
func (r records) EraseDead(ctx context.Context, f store.EraseFilter, limit int) (int, error) {
	return r.count(ctx, eraseDeadSQL, f.Key, f.Tenant, f.MessageID, int64(limit))
}

// CountErasable implements store.EraseReader.
func (r records) CountErasable(ctx context.Context, f store.EraseFilter) (parked, dead int64, err error) {
	err = r.query(ctx, countErasableSQL, []any{f.Key, f.Tenant, f.MessageID}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&parked, &dead}, func() error { return nil })
		return err
	})
	return parked, dead, err
}
