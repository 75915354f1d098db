package main

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/bench/internal/report"
)

const (
	backlogSmall = "backlog of 100,000"
	backlogLarge = "backlog of 10,000,000"
)

// backlogSuite delivers the same number of messages from logs of different sizes. The large one takes some 10 GB on disk.
var backlogSuite = suite{
	name: "backlog", title: "Deliver the first 100,000 messages of a backlog to a batch handler", figure: figureRate, unit: "msg/s", also: usual, slow: true, long: true,
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		if err := b.database(ctx); err != nil {
			return nil, err
		}
		b.n = 100_000
		var entries []entry
		for _, size := range []struct {
			name, prefix string
			messages     int
		}{{backlogSmall, "small_", 100_000}, {"backlog of 1,000,000", "medium_", 1_000_000}, {backlogLarge, "large_", 10_000_000}} {
			s, err := b.store(ctx, size.prefix)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(b.progress, "backlog: writing %s messages\n", report.Number(float64(size.messages)))
			if err := b.generate(ctx, size.prefix, size.messages); err != nil {
				return nil, err
			}
			e := b.drainEntry(size.name, backlogSmall, "", s)
			if size.name == backlogSmall {
				e.limit = ""
			}
			entries = append(entries, e)
		}
		return entries, nil
	},
}

// generateSQL writes messages inside the database, as the SQL contract allows. %[1]s is the outbox's prefix.
const generateSQL = `
insert into %[1]slog (partition, id, topic, key, type, source, payload)
select ('x' || substr(md5(m.key), 1, 8))::bit(32)::int8 %% %[1]spartitions(), gen_random_uuid()::text, $1, m.key, $1, $2, $3
from (select 'order/' || i %% $5 as key from generate_series(1, $4::int) as i) as m`

// generate writes n messages of 10,000 keys, a million per transaction, and vacuums the log.
func (b *bundle) generate(ctx context.Context, prefix string, n int) error {
	const chunk = 1_000_000
	for left := n; left > 0; left -= chunk {
		if _, err := b.pool.Exec(ctx, fmt.Sprintf(generateSQL, prefix), messageType, source, payload, min(chunk, left), manyKeys); err != nil {
			return err
		}
	}
	_, err := b.pool.Exec(ctx, "vacuum analyze "+prefix+"log")
	return err
}
