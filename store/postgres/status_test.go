//go:build !race

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/store/postgres"
)

// TestStatusOfALongBacklog: however many messages are undelivered, the status reads no more rows, and says that there are at least as many
// as it counted.
func TestStatusOfALongBacklog(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{Partitions: 1}, 1) // statistics are those of one connection
	b.leaseAll(t, "r")
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
		if of := st.Relays[0]; !of.Backlog.AtLeast || of.Backlog.N < 10_000 {
			t.Errorf("the backlog is %+v", of.Backlog)
		}
		return rows() - before
	}
	write := func(n int) {
		b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, payload)
			select 0, 'm' || i, 't', 'k' || i %% 1000, 't', '{}' from generate_series(1, $1::int4) as i`, b.table("log")), n)
	}
	write(20_000)
	few := read()
	write(280_000)
	if many := read(); few < 10_000 || many > 2*few {
		t.Errorf("with 20,000 messages, a status reads %d rows, with 300,000 it reads %d", few, many)
	}
}

// TestStatusOfManyDeadLetters: a relay without dead letters does not read those of another one to find its oldest.
func TestStatusOfManyDeadLetters(t *testing.T) {
	t.Parallel()
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
