package faults

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// stores is the interface of a store for relays, publishers and consumers.
type stores[Tx any] interface {
	store.Inbox[Tx]
	Insert(ctx context.Context, tx Tx, msgs []*postrider.Message) error
	Commit(ctx context.Context, tx Tx) error
	Written(ctx context.Context, tx Tx, ids []string) ([]string, error)
	Published(ctx context.Context, tx Tx) ([]*postrider.Message, error)
	Wake(topics ...string)
	store.StatusReader
}

var _ store.Outbox[pgx.Tx] = stores[pgx.Tx](nil)

// session runs statements in a transaction of either database. Parameters are question marks.
type session interface {
	exec(ctx context.Context, sql string, args ...any) error
	row(ctx context.Context, sql string, into any, args ...any) error
}

type pgxSession struct{ tx pgx.Tx }

func (s pgxSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.tx.Exec(ctx, numbered(text), args...)
	return err
}

func (s pgxSession) row(ctx context.Context, text string, into any, args ...any) error {
	return s.tx.QueryRow(ctx, numbered(text), args...).Scan(into)
}

type sqlSession struct{ tx *sql.Tx }

func (s sqlSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.tx.ExecContext(ctx, text, args...)
	return err
}

func (s sqlSession) row(ctx context.Context, text string, into any, args ...any) error {
	return s.tx.QueryRowContext(ctx, text, args...).Scan(into)
}

func onPostgres(tx pgx.Tx) session { return pgxSession{tx} }

func onMySQL(tx *sql.Tx) session { return sqlSession{tx} }

// numbered converts parameters to PostgreSQL's form.
func numbered(text string) string {
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(text, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}
