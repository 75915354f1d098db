package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

const (
	unmarkedExistSQL = `select exists (select 1 from {dead} where fingerprint = '' and cause <> '')`
	unmarkedSQL      = `select number, cause from {dead} where fingerprint = '' and cause <> '' order by number desc limit 1000 for update`

	// markCausesSQL: $1 numbers, $2 fingerprints.
	markCausesSQL = `
update {dead} d set fingerprint = m.fingerprint from unnest($1::int8[], $2::text[]) as m (number, fingerprint)
where d.number = m.number`

	// countCausesSQL counts causes of a filter's dead letters, at most $18 groups.
	countCausesSQL = `
select g.relay, g.type, g.fingerprint, g.letters, g.oldest, g.newest, g.last, d.reason, d.cause from (
	select relay, type, fingerprint, count(*) as letters, min(died_at) as oldest, max(died_at) as newest, max(number) as last
	from {dead} where ` + queriedSQL + ` group by relay, type, fingerprint order by letters desc, last limit $18::int8) as g
join {dead} d on d.number = g.last order by g.letters desc, g.last`
)

// MarkCauses implements store.Records. Only a program can compute fingerprints, so the SQL that dead-letters messages leaves
// them empty.
func (s *Store) MarkCauses(ctx context.Context) (more bool, err error) {
	if _, err := s.open(ctx); err != nil {
		return false, err
	}
	if err := s.pool.QueryRow(ctx, s.names.expand(unmarkedExistSQL)).Scan(&more); err != nil || !more {
		return false, translate("look for fingerprints", err)
	}
	return true, s.change(ctx, "compute fingerprints", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.names.expand(unmarkedSQL))
		if err != nil {
			return err
		}
		var numbers []int64
		var prints []string
		var number int64
		var cause string
		if _, err := pgx.ForEachRow(rows, []any{&number, &cause}, func() error {
			numbers, prints = append(numbers, number), append(prints, store.Fingerprint(cause))
			return nil
		}); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.names.expand(markCausesSQL), list(numbers), list(prints))
		return err
	})
}

// CountCauses implements store.Reader.
func (r records) CountCauses(ctx context.Context, q store.DeadQuery) (out []store.CauseCount, err error) {
	err = r.query(ctx, countCausesSQL, queryArgs(q, int64(q.Limit)), func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c store.CauseCount, err error) {
			err = row.Scan(&c.Relay, &c.Type, &c.Fingerprint, &c.DeadLetters, &c.Oldest, &c.Newest, &c.Number, &c.Reason, &c.Cause)
			c.Oldest, c.Newest = c.Oldest.UTC(), c.Newest.UTC()
			return c, err
		})
		return err
	})
	return out, err
}

const (
	// keepEditSQL keeps the previous content exactly as stored, even if it cannot be read: $1 number, $2 by, $3 why.
	keepEditSQL = `
insert into {dead_edits} (number, n, edited_by, why, headers, payload)
select number, edits + 1, $2::text, $3::text, headers, payload from {dead} where number = $1::int8`
	// editSQL: $1 number, $2 headers or null, $3 payload or null.
	editSQL = `
update {dead} set edits = edits + 1, headers = coalesce($2::text::jsonb, headers), payload = coalesce($3::bytea, payload)
where number = $1::int8`
	listEditsSQL = `
select edited_at, edited_by, why, headers::text, payload from {dead_edits} where number = $1::int8 order by n`
)

// EditDead implements store.Writer.
func (r records) EditDead(ctx context.Context, number int64, e store.Edit) error {
	if err := r.exec(ctx, keepEditSQL, number, e.By, e.Why); err != nil {
		return err
	}
	var headers *string
	if e.Headers != nil {
		text, err := headerText(e.Headers)
		if err != nil {
			return err
		}
		headers = &text
	}
	return r.exec(ctx, editSQL, number, headers, e.Payload)
}

// headerText encodes headers as they are stored.
func headerText(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// Edits implements store.Reader.
func (r records) Edits(ctx context.Context, number int64) (out []store.Edited, err error) {
	err = r.query(ctx, listEditsSQL, []any{number}, func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e store.Edited, err error) {
			var headers string
			err = row.Scan(&e.At, &e.By, &e.Why, &headers, &e.Payload)
			e.At = e.At.UTC()
			e.Headers, _ = readHeaders([]byte(headers)) // headers that cannot be read may be the reason for the edit
			return e, err
		})
		return err
	})
	return out, err
}

const (
	// importLockSQL lets one import at a time check what exists: $1 the outbox. The lock ends with the transaction.
	importLockSQL = `select pg_advisory_xact_lock(hashtextextended($1::text, 1))`
	// samePartitionsSQL keeps the number of partitions from changing, which would move the dead letters.
	samePartitionsSQL = `lock table {dead} in row exclusive mode`

	// importDeadSQL adds a dead letter that does not exist here, without a sequence: $1 relay, $2 partition, $3 to $19 the message,
	// $20 reason, $21 cause, $22 attempts, $23 history, $24 died at, $25 redrives, $26 state, $27 resolved at, $28 by, $29
	// resolution, $30 edits.
	importDeadSQL = `
insert into {dead} (relay, partition, {message}, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
	resolved_by, resolution, edits)
select $1::text, $2::int2, 0, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::timestamptz, $11::int4,
	$12::int8, $13::text, $14::text::jsonb, $15::text, $16::text, $17::bytea, $18::timestamptz, $19::timestamptz, $20::text,
	$21::text, $22::int4, $23::text::jsonb, $24::timestamptz, $25::int4, $26::text, $27::timestamptz, $28::text, $29::text,
	$30::int4
where not exists (select 1 from {dead} where id = $3::text and relay = $1::text and died_at = $24::timestamptz)
returning number`

	// placeImportedSQL: $1 number, $2 sequence.
	placeImportedSQL = `update {dead} set seq = $2::int8 where number = $1::int8`

	// importEditSQL: $1 number, $2 which, $3 at, $4 by, $5 why, $6 headers, $7 payload.
	importEditSQL = `
insert into {dead_edits} (number, n, edited_at, edited_by, why, headers, payload)
values ($1::int8, $2::int4, $3::timestamptz, $4::text, $5::text, $6::text::jsonb, $7::bytea)`
)

// ImportDead implements store.Writer.
func (r records) ImportDead(ctx context.Context, a store.ArchivedDead) (added bool, err error) {
	if !*r.importing {
		if err := r.exec(ctx, importLockSQL, r.s.names.table("dead")); err != nil {
			return false, err
		}
		if err := r.exec(ctx, samePartitionsSQL); err != nil {
			return false, err
		}
		*r.importing = true
	}
	partitions, err := onlyOf[int](ctx, r, presentPartitionsSQL)
	if err != nil {
		return false, err
	}
	m := a.Message
	headers, err := headerText(m.Headers)
	if err != nil {
		return false, err
	}
	history := []byte("[]")
	if len(a.History) > 0 {
		if history, err = json.Marshal(a.History); err != nil {
			return false, err
		}
	}
	args := []any{
		a.Relay, postrider.PartitionOf(m.Key, m.ID, partitions),
		m.ID, m.Topic, m.Key, m.Type, m.Source, m.Subject, m.Tenant, m.Time, m.SchemaVersion, m.AggregateVersion, m.ContentType,
		headers, m.CorrelationID, m.CausationID, append([]byte{}, m.Payload...), orNull(m.DeliverAt), m.CreatedAt, a.Reason,
		a.Cause, a.Attempts, string(history), a.DiedAt, a.Redrives, string(a.State), orNull(a.ResolvedAt),
		a.ResolvedBy, a.Resolution, len(a.Before),
	}
	var number int64
	err = r.query(ctx, importDeadSQL, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&number}, func() error { return nil })
		return err
	})
	if err != nil || number == 0 {
		return false, err
	}
	if err := r.exec(ctx, placeImportedSQL, number, store.ImportedSequence(number)); err != nil {
		return false, err
	}
	for i, e := range a.Before {
		headers, err := headerText(e.Headers)
		if err != nil {
			return false, err
		}
		if err := r.exec(ctx, importEditSQL, number, i+1, e.At, e.By, e.Why, headers, append([]byte{}, e.Payload...)); err != nil {
			return false, err
		}
	}
	return true, nil
}
