package postgres

import (
	"context"

	"github.com/postrider/postrider/store"
)

var _ store.Prober = (*Store)(nil)

// lastSequenceSQL reads one row, which the server keeps in memory.
const lastSequenceSQL = `select last_value - 1 + is_called::int4 from {log_seq_seq}`

// LastSequence implements store.Prober.
func (s *Store) LastSequence(ctx context.Context) (last int64, err error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, s.sql.lastSequence).Scan(&last)
	return last, translate("read the sequence of the log", err)
}
