package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

const (
	// durableSQL makes the transaction wait for the disk if its session would not, and is true. A broker deletes a message once it
	// is acknowledged, so a crash must not lose the commit of its side effects. Other settings are left alone.
	durableSQL = `case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', true) = 'on' else true end`

	// claimSQL inserts in the order of the array, which is sorted: if two calls claim the same messages, they meet at the first of
	// them and one waits for the other. It waits for a row that another open transaction has inserted, and inserts the row if that
	// transaction rolls back. $1 consumer, $2 ids.
	claimSQL = `
insert into {claims} (consumer, id) select $1::text, i.id from unnest($2::text::text[]) as i (id) where (select ` + durableSQL + `)
on conflict do nothing returning id`

	// claimOneSQL is for a single message, the common case.
	claimOneSQL = `insert into {claims} (consumer, id) values ($1::text, $2::text) on conflict do nothing
		returning case when ` + durableSQL + ` then id end`

	// heldAmongSQL: $1 consumer, $2 keys. heldOneSQL is for a single key.
	heldAmongSQL = `select h.key from {held} h where h.relay = $1::text and h.key = any($2::text::text[])`
	heldOneSQL   = `select h.key from {held} h where h.relay = $1::text and h.key = $2::text`
)

// claim holds the queries of a claim and what they return.
type claim struct {
	msgs          []store.ClaimRequest
	queries       []query
	claimed, held []string
}

// newClaim prepares a claim. The keys are looked up by a separate statement, after the one that may wait: its snapshot shows a
// key that was held together with a claim that was waited for.
func (s *Store) newClaim(consumer string, msgs []store.ClaimRequest) *claim {
	c := &claim{msgs: msgs}
	ids, keys := make([]string, len(msgs)), make([]string, 0, len(msgs))
	for i, m := range msgs {
		ids[i] = m.ID
		if m.Key != "" {
			keys = append(keys, m.Key)
		}
	}
	q := query{sql: s.sql.claimOne, args: []any{consumer, ids[0]}, row: text(&c.claimed)}
	if len(ids) > 1 {
		q.sql, q.args[1] = s.sql.claim, array(distinct(ids), quoted)
	}
	c.queries = append(c.queries, q)
	if len(keys) > 0 {
		c.queries = append(c.queries, s.lookForHeld(consumer, keys, &c.held))
	}
	return c
}

// results returns the results of the queries.
func (c *claim) results() []store.ClaimResult {
	out := make([]store.ClaimResult, len(c.msgs))
	if len(c.msgs) == 1 {
		out[0] = store.ClaimResult{Fresh: len(c.claimed) > 0, Held: len(c.held) > 0}
		return out
	}
	fresh, holding := set(c.claimed), set(c.held)
	for i, m := range c.msgs {
		out[i] = store.ClaimResult{Fresh: fresh[m.ID], Held: holding[m.Key]}
		delete(fresh, m.ID) // the first counts
	}
	return out
}

// claim implements Claim.
func (s *Store) claim(ctx context.Context, c caller, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	claim := s.newClaim(consumer, msgs)
	if err := s.callLocking(ctx, c, consumer, claim.queries...); err != nil {
		return nil, translate("claim messages", err)
	}
	return claim.results(), nil
}

// lookForHeld returns the query for held keys. It sorts the keys.
func (s *Store) lookForHeld(consumer string, keys []string, held *[]string) query {
	q := query{sql: s.sql.heldOne, args: []any{consumer, keys[0]}, row: text(held)}
	if len(keys) > 1 {
		q.sql, q.args[1] = s.sql.heldAmong, array(distinct(keys), quoted)
	}
	return q
}

// distinct sorts texts and removes duplicates.
func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

func set(texts []string) map[string]bool {
	out := make(map[string]bool, len(texts))
	for _, t := range texts {
		out[t] = true
	}
	return out
}

// The statements of versions: $1 consumer, $2 key, $3 version.
const (
	makeVersionSQL = `insert into {versions} (consumer, key) values ($1::text, $2::text) on conflict do nothing`
	lockVersionSQL = `select version from {versions} where consumer = $1::text and key = $2::text for update`
	setVersionSQL  = `
insert into {versions} (consumer, key, version) values ($1::text, $2::text, $3::int8)
on conflict (consumer, key) do update set version = excluded.version`
)

func (s *Store) version(ctx context.Context, c caller, consumer, key string) (v int64, err error) {
	args := []any{consumer, key}
	err = c.call(ctx, query{sql: s.sql.makeVersion, args: args}, query{sql: s.sql.lockVersion, args: args,
		row: func(scan func(...any) error) error { return scan(&v) }})
	return v, translate("read an aggregate version", err)
}

func (s *Store) setVersion(ctx context.Context, c caller, consumer, key string, version int64) error {
	return translate("note an aggregate version",
		c.call(ctx, query{sql: s.sql.setVersion, args: []any{consumer, key, version}}))
}

// removeClaimsSQL: $1 consumer, $2 age in microseconds, $3 limit. It addresses rows by ctid; claims never move.
const removeClaimsSQL = `
delete from {claims} where ctid = any(array(
	select ctid from {claims} where consumer = $1::text
		and claimed_at < statement_timestamp() - $2::float8 * interval '1 microsecond'
	order by claimed_at limit $3::int8))`

// RemoveClaims implements store.Ledger. It finds claims by the index on age. If a crash loses the removal, it is repeated.
func (s *Store) RemoveClaims(ctx context.Context, consumer string, age time.Duration, limit int) (int, error) {
	n, err := s.removeOld(ctx, removeClaimsSQL, consumer, age, limit)
	return n, translate(fmt.Sprintf("remove claims of consumer %q", consumer), err)
}

// removeOld runs a statement that removes old rows.
func (s *Store) removeOld(ctx context.Context, text, name string, age time.Duration, limit int) (int, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	return retry(func() (n int, err error) {
		err = s.runQueries(ctx, query{sql: settlePlanSQL}, query{
			sql:  `with gone as (` + s.names.expand(text) + ` returning 1) select count(*) from gone`,
			args: []any{name, age.Microseconds(), int64(limit)},
			row:  func(scan func(...any) error) error { return scan(&n) },
		})
		return n, err
	})
}
