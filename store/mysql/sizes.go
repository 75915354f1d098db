package mysqlstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store"
)

// sizesSQL is followed by the names of tables. MySQL keeps these figures for up to information_schema_stats_expiry, a day by default.
const sizesSQL = `SELECT table_name, CAST(COALESCE(data_length, 0) + COALESCE(index_length, 0) AS SIGNED)
	FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN (`

// sizes reads the sizes of the tables.
func (t txn) sizes(ctx context.Context) (out []store.TableSize, err error) {
	prefix := t.s.cfg.Prefix
	var names []any
	for _, table := range doctor.Tables(doctor.ParseObjects(objectsText)) {
		names = append(names, prefix+table)
	}
	err = t.each(ctx, sizesSQL+strings.Repeat("?, ", len(names)-1)+"?)", names, func(rows *sql.Rows) error {
		var size store.TableSize
		err := rows.Scan(&size.Table, &size.Bytes)
		size.Table = strings.TrimPrefix(size.Table, prefix)
		out = append(out, size)
		return err
	})
	return out, err
}
