package postgres

import "math"

const (
	// kindSQL is the kind of row g of relay_partitions. A program of schema version 10 leaves it null; what it registered is a
	// consumer if its cursors are at consumerPosition.
	kindSQL = `coalesce(g.kind, case when exists (select from {cursors} k
	where k.relay = g.relay and k.partition = g.partition and k.position = 9223372036854775806) then 'consumer' else 'relay' end)`

	// consumerNamesSQL returns the names of all consumers.
	consumerNamesSQL = `select g.relay from {relay_partitions} g where g.partition = 0 and ` + kindSQL + ` = 'consumer'`

	// readsSQL says whether cursor c is that of a relay. The rows of consumers only number their settlements.
	readsSQL = `c.relay not in (` + consumerNamesSQL + `)`

	// kindOfSQL: $1 name.
	kindOfSQL = `select ` + kindSQL + ` from {relay_partitions} g where g.relay = $1::text order by g.partition limit 1`

	// consumerPosition and seesAll are written to the cursors of consumers for programs of schema version 10, which find no message
	// there and recognize consumers by it. Nothing else reads them.
	consumerPosition = int64(math.MaxInt64 - 1)
	seesAll          = "18446744073709551615:18446744073709551615:"
)
