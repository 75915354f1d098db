package store

import (
	"errors"
	"time"
)

// Errors of records.
var (
	// ErrNoRecord: no record of this kind has this ID.
	ErrNoRecord = errors.New("no such record")
	// ErrRecordChanged: the record is not in the revision that the change was made for, or a new one exists already.
	ErrRecordChanged = errors.New("the record has changed")
)

// KindLegalHold is the kind of the records of active legal holds (package legalhold). While there is one, Maintain drops no message.
const KindLegalHold = "legal hold"

// RecordTable is the table of a Record. Each has rights of its own in the database.
type RecordTable string

// The tables of records.
const (
	// WorkRecords are what operators work with, such as replays and reviews.
	WorkRecords RecordTable = "records"
	// AuthRecords grant access, or take it back.
	AuthRecords RecordTable = "auth"
	// AuditRecords say what operators did. They are never changed.
	AuditRecords RecordTable = "audit"
)

// Record is something that a package above the stores keeps, of a kind that it defines, e.g. a replay. Stores never look into Body.
type Record struct {
	Table RecordTable
	// Kind and ID identify the record; Kind has up to 64 bytes, ID up to 512.
	Kind, ID string
	// Rev is 1 for a new record, and rises by one with each change.
	Rev int64
	// At is when it was last changed, on the database's clock. A record with an Expires is gone from then on; zero means never.
	At, Expires time.Time
	// Body is not nil.
	Body []byte
}

// RecordQuery selects records of one kind, in descending order of ID.
type RecordQuery struct {
	Table RecordTable
	Kind  string
	// ID selects one record; Before those with a lower ID. "" means any.
	ID, Before string
	// Limit is the maximum number of results.
	Limit int
}
