package mysqlstore

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// isPositionSQL: ?2 kind, ?3 beginning of the ID.
	isPositionSQL = `kind = ?2 AND LEFT(id, LENGTH(?3)) = ?3`
	countKeptSQL  = `SELECT (SELECT COUNT(*) FROM {prefix}dead WHERE relay = ?1), (SELECT COUNT(*) FROM {prefix}attempts WHERE relay = ?1),
		(SELECT COUNT(*) FROM {prefix}claims WHERE consumer = ?1) + (SELECT COUNT(*) FROM {prefix}versions WHERE consumer = ?1),
		(SELECT COUNT(*) FROM {prefix}watermarks WHERE consumer = ?1) + (SELECT COUNT(*) FROM {prefix}records WHERE ` + isPositionSQL + `)`
	isKnownSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}cursors WHERE relay = ?1) OR EXISTS (SELECT 1 FROM {prefix}relays WHERE relay = ?1)`

	numbersOfSQL       = `SELECT number FROM {prefix}dead WHERE relay = ? ORDER BY number LIMIT ?`
	removeNumbersSQL   = `DELETE FROM {prefix}dead WHERE number IN ?`
	removePositionsSQL = `DELETE FROM {prefix}records WHERE ?1 <> '' AND ` + isPositionSQL
)

// removeKeptSQLs remove what is kept about relay ?1, up to ?2 rows each.
var removeKeptSQLs = []string{
	`DELETE FROM {prefix}attempts WHERE relay = ?1 LIMIT ?2`, `DELETE FROM {prefix}claims WHERE consumer = ?1 LIMIT ?2`,
	`DELETE FROM {prefix}versions WHERE consumer = ?1 LIMIT ?2`, `DELETE FROM {prefix}watermark_marks WHERE consumer = ?1 LIMIT ?2`,
	`DELETE FROM {prefix}watermarks WHERE consumer = ?1 LIMIT ?2`,
}

// CountKept implements store.HeldReader.
func (r records) CountKept(ctx context.Context, name string) (k store.KeptRecords, err error) {
	err = r.get(ctx, countKeptSQL, []any{name, stored.KindPosition, stored.PositionsOf(name)}, &k.DeadLetters, &k.Attempts, &k.Processed, &k.Positions)
	return k, err
}

// RemoveKept implements store.HeldWriter.
func (r records) RemoveKept(ctx context.Context, name string, limit int) (int, error) {
	var floor int64
	if err := r.get(ctx, keepRelaysSQL, nil, &floor); err != nil {
		return 0, err
	}
	var registered bool
	if err := r.get(ctx, isKnownSQL, []any{name}, &registered); err != nil {
		return 0, err
	}
	if registered {
		return 0, store.ErrRegistered
	}
	numbers, err := stored.Column[int64](ctx, r.txn.query, numbersOfSQL, name, limit)
	if err == nil && len(numbers) > 0 {
		_, err = r.asTx().ExecAll(ctx, []string{removeEditsSQL, removeNumbersSQL}, numbers)
	}
	if err != nil {
		return 0, err
	}
	n, err := r.asTx().ExecAll(ctx, removeKeptSQLs, name, limit)
	if err != nil {
		return 0, err
	}
	positions, err := r.exec(ctx, removePositionsSQL, name, stored.KindPosition, stored.PositionsOf(name))
	return len(numbers) + int(n+positions), err
}
