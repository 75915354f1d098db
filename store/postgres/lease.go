package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// Everyone locks leases in partition order, so that no deadlock can occur. A settlement locks them FOR KEY SHARE, so settlements
// do not wait for each other; statements that grant or release leases lock FOR UPDATE.

// heldSQL says whether a lease is granted by this incarnation of the server. To check who holds it, also compare token or owner.
const heldSQL = `l.incarnation = {incarnation}() and l.owner <> ''`

// ownerLivesSQL says whether the owner of lease l counts as alive.
const ownerLivesSQL = `exists (
	select from {relays} r where r.relay = l.relay and r.owner = l.owner and r.alive_until > clock_timestamp())`

// releaseSQL: $1 relay, $2 partitions, $3 tokens.
const releaseSQL = `
with mine as materialized (
	select l.partition from {leases} l join unnest($2::int2[], $3::text[]) as i (partition, token) using (partition, token)
	where l.relay = $1::text and ` + heldSQL + ` order by l.partition for update of l
)
update {leases} l set owner = '', token = '' from mine where l.relay = $1::text and l.partition = mine.partition`

// Release implements store.Leases.
func (s *Store) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	partitions, tokens := leaseArgs(leases)
	_, err := retry(func() (struct{}, error) {
		_, err := s.pool.Exec(ctx, s.sql.release, name, partitions, tokens)
		return struct{}{}, err
	})
	return translate("release partitions of relay "+name, err)
}

// leaseArgs returns leases as parameters.
func leaseArgs(leases []store.LeaseRef) (partitions []int16, tokens []string) {
	partitions, tokens = make([]int16, len(leases)), make([]string, len(leases))
	for i, l := range leases {
		partitions[i], tokens[i] = int16(l.Partition), l.Token
	}
	return partitions, tokens
}

// leaveSQL: $1 relay, $2 owner.
const leaveSQL = `
with mine as materialized (
	select l.partition from {leases} l where l.relay = $1::text and l.owner = $2::text and ` + heldSQL + ` order by l.partition for update
), released as (
	update {leases} l set owner = '', token = '' from mine where l.relay = $1::text and l.partition = mine.partition
)
update {relays} set alive_until = least(alive_until, clock_timestamp()), generation = 0 where relay = $1::text and owner = $2::text`

// Leave implements store.Leases.
func (s *Store) Leave(ctx context.Context, name string, owner store.Owner) error {
	if _, err := s.open(ctx); err != nil {
		return err
	}
	_, err := retry(func() (struct{}, error) {
		_, err := s.pool.Exec(ctx, s.sql.leave, name, owner.ID)
		return struct{}{}, err
	})
	s.heartbeats.closeIdle() // another relay of this process reopens it
	return translate("leave relay "+name, err)
}

// Partitions implements store.Leases.
func (s *Store) Partitions(ctx context.Context) (int, error) { return s.open(ctx) }

// holdingSQL returns the leases that hold: $1 relay, $2 partitions, $3 tokens.
const holdingSQL = `
select l.partition::int4 from {leases} l join unnest($2::int2[], $3::text[]) as i (partition, token) using (partition, token)
where l.relay = $1::text and ` + heldSQL

// lost returns the partitions of leases that do not hold.
func lost(leases []store.LeaseRef, holding map[int]bool) (partitions []int) {
	for _, l := range leases {
		if !holding[l.Partition] {
			partitions = append(partitions, l.Partition)
		}
	}
	return partitions
}

func readHolding(results pgx.BatchResults) (map[int]bool, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	found := make(map[int]bool)
	var p int
	_, err = pgx.ForEachRow(rows, []any{&p}, func() error {
		found[p] = true
		return nil
	})
	return found, err
}
