package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// heldColumns: the message that blocks a key is a dead letter if the key waits for a decision, otherwise the queued message.
	heldColumns = `h.relay, h.partition, h.key, h.seq, coalesce(iif(h.due_at IS NULL,
		(SELECT d.id FROM {prefix}dead d WHERE d.relay = h.relay AND d.partition = h.partition AND d.seq = h.seq
			ORDER BY d.number DESC LIMIT 1),
		(SELECT p.id FROM {prefix}parked p WHERE p.relay = h.relay AND p.seq = h.seq AND p.due_at IS NULL)), ''),
		h.reason, h.cause, h.attempts, h.since, h.due_at,
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}parked p WHERE p.relay = h.relay AND p.key = h.key AND p.due_at IS NULL
			LIMIT 10000))`

	// nextRelaySQL: after ?1.
	nextRelaySQL = `SELECT coalesce(min(relay), '') FROM (SELECT min(relay) AS relay FROM {prefix}held WHERE relay > ?1
		UNION ALL SELECT min(relay) FROM {prefix}parked WHERE relay > ?1)`

	// listHeldSQL returns a page of the held keys of relay ?1: after ?2 since and ?3 key, ?4 rows.
	listHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ?1 AND (h.since, h.key) > (?2, ?3)
		ORDER BY h.since, h.key LIMIT +?4`
	showHeldSQL = `SELECT ` + heldColumns + ` FROM {prefix}held h WHERE h.relay = ? AND h.key = ?`
)

const (
	shownSQL  = `SELECT ` + parkedColumns + `, p.history, p.relay FROM {prefix}parked p WHERE p.relay = ?1 AND `
	queuedSQL = shownSQL + `p.key = ?2 AND p.due_at IS NULL ORDER BY p.seq LIMIT +?3`
	// listParkedSQL returns a page of the messages of relay ?1 that wait by themselves: after ?2 due, ?3 partition and ?4 sequence,
	// ?5 rows.
	listParkedSQL = shownSQL + `p.due_at IS NOT NULL AND (p.due_at, p.partition, p.seq) > (?2, ?3, ?4)
		ORDER BY p.due_at, p.partition, p.seq LIMIT +?5`
	parkedByIDSQL   = shownSQL + `p.id = ?2 ORDER BY p.seq`
	parkedCountsSQL = `SELECT relay, reason, count(*), min(parked_at) FROM {prefix}parked WHERE due_at IS NOT NULL
		AND (?1 = '' OR relay = ?1) GROUP BY relay, reason ORDER BY relay, reason`
)

// heldStatements are the statements of records.
var heldStatements = stored.HeldStatements{
	NextRelay: nextRelaySQL, List: listHeldSQL, Show: showHeldSQL, Queued: queuedSQL, Parked: listParkedSQL, ByID: parkedByIDSQL,
	Count: parkedCountsSQL, ReadHeld: readHeld, ReadParked: stored.ReadParked,
}

func readHeld(ctx context.Context, q stored.Query, text string, args ...any) (out []store.HeldInfo, err error) {
	err = q.Each(ctx, text, args, func(rows *sql.Rows) error {
		var queued int
		h, err := stored.ScanHeld(rows.Scan, &queued)
		h.Parked = queued
		out = append(out, h)
		return err
	})
	return out, err
}

// Decision implements store.HeldReader.
func (r records) Decision(ctx context.Context, id string) (store.Decision, error) {
	found, err := r.decisions(ctx, decisionSQL, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("decision %s: %w", id, store.ErrNoDecision)
	}
	if err != nil {
		return store.Decision{}, err
	}
	return found[0], nil
}
