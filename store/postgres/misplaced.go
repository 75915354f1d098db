package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// No relay reads a row whose partition does not exist. Publish and the SQL functions write none, but a program that inserts rows
// itself can.
const (
	misplacedSQL = `
select exists (select from {log} where partition < 0) or exists (select from {log} where partition >= {partitions}())`

	// placeSQL writes up to 2,000 such rows again, as new messages of the partitions that they belong to.
	placeSQL = `
with misplaced as (
	delete from {log} l using (
		(select partition, seq from {log} where partition < 0 order by partition, seq limit 1000)
		union all
		(select partition, seq from {log} where partition >= {partitions}() order by partition, seq limit 1000)
	) as m where l.partition = m.partition and l.seq = m.seq returning l.*
)
insert into {log} (partition, ` + insertedColumns + `) select {place}, ` + insertedColumns + ` from misplaced order by seq`

	insertedColumns = plainSQL + `, ` + restSQL + `, available_at, created_at`

	// placesAtMost is how many statements one call of Maintain runs.
	placesAtMost = 100
)

// place moves messages from partitions that do not exist to those that they belong to.
func (m *maintenance) place(ctx context.Context, _ store.Retention) error {
	text := m.store.names.expand(strings.ReplaceAll(placeSQL, "{place}", strings.ReplaceAll(partitionOfSQL, "$1::int4", "{partitions}()")))
	for n := range placesAtMost {
		misplaced, err := m.misplaced(ctx)
		if err != nil || !misplaced {
			return err
		}
		if n == 0 {
			m.store.config.Logger.Warn("postrider: the log has messages in partitions that do not exist; they are moved to those that they " +
				"belong to. A program that inserts rows must compute the partition as the SQL contract says")
		}
		moved, err := m.change(ctx, "move messages to partitions that exist", limits(maxLockWait, attachTimeout)+planSQL+";"+text)
		if err != nil || !moved {
			return err
		}
		m.store.Wake()
	}
	return nil
}

func (m *maintenance) misplaced(ctx context.Context) (found bool, err error) {
	results, err := implicit(ctx, m.store.pool, planSQL, func(b *pgx.Batch) { b.Queue(m.store.names.expand(misplacedSQL)) })
	if err != nil {
		return false, err
	}
	err = results.QueryRow().Scan(&found)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return false, fmt.Errorf("look for partitions that do not exist: %w", err)
	}
	return found, nil
}
