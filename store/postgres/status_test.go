//go:build !race

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/store/postgres"
)

// TestStatusOfALongBacklog: however many messages are undelivered, and in however many partitions, the status reads no more rows of a relay
// than it counts, and says that there are at least as many.
func TestStatusOfALongBacklog(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := cloned(t, dsn(t), postgres.Config{Partitions: 8}, 1) // statistics are those of one connection
	b.leaseAll(t, "r")
	b.leaseAll(t, "s")
	rows := func() int64 {
		b.exec(t, "select pg_stat_force_next_flush()")
		b.exec(t, "select 1")
		return one[int64](t, b.pool, `select (select sum(seq_tup_read) from pg_stat_user_tables where relname like '%log%')::int8
			+ (select sum(idx_tup_read) from pg_stat_user_indexes where relname like '%log%')::int8`)
	}
	read := func() int64 {
		before := rows()
		st, err := b.Status(t.Context())
		must(t, err)
		for _, of := range st.Relays {
			if !of.Backlog.AtLeast || of.Backlog.N != 10_000 || of.Age == 0 || of.Partitions[7].Age == 0 {
				t.Errorf("the backlog is %+v", of)
			}
		}
		return rows() - before
	}
	write := func(n int) {
		b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, payload)
			select i %% 8, 'm' || i, 't', 'k' || i %% 1000, 't', '{}' from generate_series(1, $1::int4) as i`, b.table("log")), n)
	}
	for _, n := range []int{20_000, 280_000} {
		write(n)
		if n := read(); n < 20_000 || n > 21_000 {
			t.Errorf("the status of two relays reads %d rows to count 10,000 of each", n)
		}
	}
}

// TestStatusOfManyDeadLetters: a relay without dead letters does not read those of another one to find its oldest.
func TestStatusOfManyDeadLetters(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := cloned(t, dsn(t), postgres.Config{Partitions: 1}, 1) // statistics are those of one connection
	b.leaseAll(t, "a")
	b.leaseAll(t, "b")
	b.exec(t, fmt.Sprintf(`insert into %s (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
			aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, cause, attempts, history, died_at,
			redrives, fingerprint)
		select 'a', 0, n, 'd' || n, 't', 'k', 't', '', '', '', now(), 0, 0, '', '{}', '', '', '', now(), 'r', 'c', 1, '[]', now(), 0, 'f'
		from generate_series(1, 50000) as n`, b.table("dead")))
	b.exec(t, "vacuum analyze "+b.table("dead"))
	rows := func() int64 {
		b.exec(t, "select pg_stat_force_next_flush()")
		b.exec(t, "select 1")
		return one[int64](t, b.pool, "select sum(idx_tup_read)::int8 from pg_stat_user_indexes where relname like '%dead'")
	}
	before := rows()
	st, err := b.Status(t.Context())
	must(t, err)
	if read := rows() - before; read > 20_000 || len(st.Relays) != 2 || st.Relays[0].Dead.N != 10_000 || st.Relays[1].Dead.N != 0 {
		t.Errorf("the status reads %d dead letters: %+v", read, st.Relays)
	}
}
