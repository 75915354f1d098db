package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store"
)

// sizesSQL returns the sizes of tables in schema $1, the segments of the log as one table. A segment that is dropped meanwhile has
// none.
const sizesSQL = `
select c.relname::text, coalesce(pg_total_relation_size(c.oid), 0::int8) + coalesce((
	select sum(pg_total_relation_size(i.inhrelid))::int8 from pg_inherits i where i.inhparent = c.oid), 0::int8)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname::text = $1 and c.relname::text = any($2::text[]) and c.relkind in ('r', 'p')`

// sizes reads the sizes of the tables.
func (r *statusReader) sizes(ctx context.Context, tx pgx.Tx) error {
	n := r.store.names
	tables := doctor.Tables(doctor.ParseObjects(objectsText))
	for i := range tables {
		tables[i] = n.prefix + tables[i]
	}
	var t store.TableSize
	return r.query(ctx, tx, sizesSQL, []any{n.schema, tables}, []any{&t.Table, &t.Bytes}, func() {
		r.rows.Tables = append(r.rows.Tables, store.TableSize{Table: strings.TrimPrefix(t.Table, n.prefix), Bytes: t.Bytes})
	})
}
