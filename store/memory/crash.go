package memory

import (
	"maps"
	"slices"

	"github.com/postrider/postrider/store"
)

// Crash begins a new incarnation of the database, as when a server crashes and recovers: every lease ends. Committed data stays.
func (s *Store) Crash() { s.CrashLosing(0) }

// CrashLosing is a Crash that loses up to n of the last settlements, as a server does that had not written them to disk. It does
// not lose settlements before the last change that waits for the disk, such as an operator's, or more than Config.Unsynced back.
// Published messages stay in any case.
func (s *Store) CrashLosing(n int) (lost int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.incarnation++
	s.db.began = now()
	for ; lost < n && len(s.db.unsynced) > 0; lost++ {
		last := len(s.db.unsynced) - 1
		s.db.unsynced[last]()
		s.db.unsynced = s.db.unsynced[:last]
	}
	return lost
}

// synced notes that everything before an operation is on disk, unless the operation does not wait for the disk. Here, publishing
// does not wait either, so a crash can lose more settlements than in a real database.
func (db *database) synced(op string) {
	switch op {
	case "Settle", "Heartbeat", "Acquire", "Release", "Leave", "Begin", "Insert", "InsertUndecodable", "Written", "Published", "Commit",
		"Rollback", "Partitions", "Fetch", "Due", "FindHeld", "FindParked", "ListHeld", "ShowHeld", "ShowDecision",
		"ListDead", "ShowDead", "CountDead", "ListEdits", "CountCauses", "ShowRedrive", "ListRedrives", "Status":
	default:
		db.unsynced = nil
	}
}

// undoable returns a function that undoes a settlement which is about to be applied.
func (s *Store) undoable(name string, partition int) (undo func()) {
	db := s.db
	if s.cfg.Unsynced <= 0 {
		return nil
	}
	r := db.relay(name)
	c, latest, deadRows := *r.cursors[partition], maps.Clone(r.latest), len(db.deadRows)
	parked := r.parked[partition].copy()
	return func() {
		now := r.cursors[partition]
		now.cursor, now.number, now.content, now.settled = c.cursor, c.number, c.content, c.settled
		now.delivered, now.failed = c.delivered, c.failed
		r.parked[partition], r.latest, db.deadRows = parked, latest, db.deadRows[:deadRows:deadRows]
	}
}

func (p *parkedSet) copy() *parkedSet {
	out := &parkedSet{
		rows: maps.Clone(p.rows), held: maps.Clone(p.held), waiting: make(map[string][]*parkedRow, len(p.waiting)),
		due: slices.Clone(p.due),
	}
	for key, w := range p.waiting {
		out.waiting[key] = slices.Clone(w)
	}
	return out
}

// settleUndoably is settleOne with a settlement that CrashLosing can undo.
func (s *Store) settleUndoably(name string, st store.Settlement) ([]string, error) {
	db := s.db
	var undo func()
	if db.check(st) == nil && db.lease(name, store.LeaseRef{Partition: st.Partition, Token: st.Token}) != nil {
		undo = s.undoable(name, st.Partition)
	}
	released, err := db.settleOne(name, st, now())
	if err == nil && undo != nil {
		db.unsynced = append(db.unsynced, undo)
		db.unsynced = db.unsynced[max(0, len(db.unsynced)-s.cfg.Unsynced):]
	}
	return released, err
}
