package shop

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/postrider/postrider/store/sqlite"
)

// OpenSQLite opens the database of a service in a file, and creates Postrider's tables in it.
func OpenSQLite(ctx context.Context, file string) (Database, error) {
	name := url.URL{Scheme: "file", Opaque: url.PathEscape(file), RawQuery: "_pragma=busy_timeout(10000)&_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return Database{}, fmt.Errorf("open %s: %w", file, err)
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		return Database{}, fmt.Errorf("create the outbox in %s: %w", file, err)
	}
	s, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		return Database{}, fmt.Errorf("open %s: %w", file, err)
	}
	return Database{Store: s, DB: db}, nil
}
