package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// heldColumns: the message that blocks a key is a dead letter if the key waits for a decision, otherwise the queued message.
	heldColumns = `h.relay, h.partition_id, h.message_key, h.seq, COALESCE(IF(h.due_at IS NULL,
		(SELECT d.id FROM {prefix}dead d WHERE d.relay = h.relay AND d.partition_id = h.partition_id AND d.seq = h.seq
			ORDER BY d.number DESC LIMIT 1),
		(SELECT p.id FROM {prefix}parked p WHERE p.relay = h.relay AND p.seq = h.seq AND p.due_at IS NULL)), ''),
		h.reason, h.cause, h.attempts, h.since, h.due_at`

	// nextRelaySQL: after ?1.
	nextRelaySQL = `SELECT COALESCE(MIN(relay), '') FROM (SELECT MIN(relay) AS relay FROM {prefix}held WHERE relay > ?1
		UNION ALL SELECT MIN(relay) FROM {prefix}parked WHERE relay > ?1) n`

	// listHeldSQL returns a page of the held keys of relay ?1: after ?2 since and ?3 key, ?4 rows.
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h FORCE INDEX ({prefix}held_since) WHERE h.relay = ?1 AND h.since >= ?2
		AND (h.since > ?2 OR h.message_key > ?3) ORDER BY h.since, h.message_key LIMIT ?4`
	showHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.message_key = ?`

	// waitCountSQL counts the queued messages of a key, up to 10000; ?1 is the index of the key in a page.
	waitCountSQL = `SELECT ?1, COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?2 AND message_key = ?3 AND due_at IS NULL
		LIMIT 10000) w`
)

// heldStatements returns the statements of records.
func (s *Store) heldStatements() *stored.HeldStatements {
	return &stored.HeldStatements{
		NextRelay: nextRelaySQL, List: listHeldSQL, Show: showHeldSQL, Queued: queuedSQL, Parked: listParkedSQL, ByID: parkedByIDSQL,
		Count: parkedCountsSQL, ReadHeld: readHeld, ReadParked: s.readParked,
	}
}

// readHeld reads held keys and counts their queued messages.
func readHeld(ctx context.Context, q stored.Query, text string, args ...any) (out []store.HeldInfo, err error) {
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		h, err := stored.ScanHeld(rows.Scan)
		out = append(out, h)
		return err
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	counts := make([]string, len(out))
	for i, h := range out {
		counts[i] = render(waitCountSQL, []any{i, h.Relay, h.Key})
	}
	err = q.Each(ctx, strings.Join(counts, ` UNION ALL `), nil, func(rows *sql.Rows) error {
		var i, n int
		err := rows.Scan(&i, &n)
		out[i].Parked = n
		return err
	})
	return out, err
}

const (
	shownSQL  = `SELECT ` + parkedColumns + `, history, relay FROM {prefix}parked `
	queuedSQL = shownSQL + `WHERE relay = ? AND message_key = ? AND due_at IS NULL ORDER BY seq LIMIT ?`

	// listParkedSQL returns a page of the messages of relay ?1 that wait by themselves: after ?2 due, ?3 partition and ?4 sequence,
	// ?5 rows.
	listParkedSQL = shownSQL + `FORCE INDEX ({prefix}parked_next) WHERE relay = ?1 AND due_at >= ?2
		AND (due_at > ?2 OR partition_id > ?3 OR partition_id = ?3 AND seq > ?4) ORDER BY due_at, partition_id, seq LIMIT ?5`

	parkedByIDSQL   = shownSQL + `WHERE relay = ? AND id = ? ORDER BY seq`
	parkedCountsSQL = `SELECT relay, reason, COUNT(*), MIN(parked_at) FROM {prefix}parked WHERE due_at IS NOT NULL
		AND (?1 = '' OR relay = ?1) GROUP BY relay, reason ORDER BY relay, reason`
)

// readParked shows parked messages without their contents to an operator who may not read these (Grants).
func (s *Store) readParked(ctx context.Context, q stored.Query, text string, args ...any) ([]store.ParkedInfo, error) {
	out, err := stored.ReadParked(ctx, q, text, args...)
	if !errors.Is(kinds[s.cfg.ErrorCode(err)], ErrDenied) {
		return out, err
	}
	out, err = stored.ReadParked(ctx, q, strings.Replace(text, messageColumns, withoutContent, 1), args...)
	for i := range out {
		out[i].Unreadable = notReadable
	}
	return out, err
}

// Decision implements store.HeldReader.
func (r records) Decision(ctx context.Context, id string) (store.Decision, error) {
	return r.txn.decision(ctx, id, ``)
}
