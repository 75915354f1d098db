package store

import (
	"context"
	"errors"
	"time"
)

// Errors of the stores of sagas.
var (
	// ErrNoSaga: no instance has this ID or run.
	ErrNoSaga = errors.New("no such instance of a saga")
	// ErrSagaMoved: the instance is not in the revision that the change was made for.
	ErrSagaMoved = errors.New("the instance of the saga has moved on")
	// ErrSagaAliasTaken: another instance of the saga has the alias.
	ErrSagaAliasTaken = errors.New("another instance of the saga has this alias")
)

// SagaStore keeps the instances of sagas. Its methods run in a transaction of the caller, commit with it and are undone with it;
// their error is ErrNoTransaction if the transaction is nil or has ended. After any error the transaction can only be
// rolled back, to a savepoint or as a whole. Slices may be empty.
type SagaStore[Tx any] interface {
	// LoadSagas locks the instances of these runs until the end of the transaction, and returns those that exist, each once, in the
	// order of Run. It locks in this order whatever the order given, so that two calls cannot wait for each other. It
	// waits for other transactions that have locked one, and returns what they left.
	LoadSagas(ctx context.Context, tx Tx, runs []string) ([]SagaInstance, error)
	// FindSagas returns the run for each lookup, "" if there is none. It locks nothing.
	FindSagas(ctx context.Context, tx Tx, lookups []SagaLookup) ([]string, error)
	// CreateSagas writes new instances. One whose run or ID exists, or whose key is held, is not written: for it, the result is
	// the existing instance, which is not locked; for a created one it is nil. If they belong to different instances, it is that
	// of the run, or else of the ID. CreateSagas waits for other transactions that create an instance with the same ID or key.
	// Errors: ErrSagaAliasTaken.
	CreateSagas(ctx context.Context, tx Tx, starts []SagaStart) (existing []*SagaInstance, err error)
	// SaveSagas writes changes of different instances, with their history. It sets EndedAt and StuckAt by the Status; an
	// instance that ends no longer holds its key, and one that is reopened does not hold it again.
	// Errors: ErrSagaMoved, also if an instance does not exist; ErrSagaAliasTaken.
	SaveSagas(ctx context.Context, tx Tx, changes []SagaChange) error
	// SetSagaVersion gives an instance that the transaction has locked another version of its definition. Errors: ErrNoSaga.
	SetSagaVersion(ctx context.Context, tx Tx, run string, version int, hash string) error
}

// SagaReader reads what is committed, for people, programs and callers that wait.
type SagaReader interface {
	// ShowSaga returns the instance with this ID or, if there is none, with this run. Errors: ErrNoSaga.
	ShowSaga(ctx context.Context, id string) (SagaInstance, error)
	// SagasByID returns the summaries of the instances with these IDs that exist, in any order, in one statement.
	SagasByID(ctx context.Context, ids []string) ([]SagaSummary, error)
	// ListSagas returns up to limit instances that match the filter and whose run is after the given one ("" for the start), in the
	// order of Run, which is that of their start.
	ListSagas(ctx context.Context, f SagaFilter, after string, limit int) ([]SagaSummary, error)
	// SagaNames returns the aliases and labels of a run, by name and value.
	SagaNames(ctx context.Context, run string) (aliases []SagaAlias, labels map[string]string, err error)
	// SagaHistory returns up to limit transitions of a run whose Rev is above after, oldest first. An unknown run has none.
	SagaHistory(ctx context.Context, run string, after int64, limit int) ([]SagaTransition, error)
	// CountSagas counts the instances that have not ended. Its cost does not grow with those that have.
	CountSagas(ctx context.Context) ([]SagaCount, error)
	// SagaDefinitions returns all stored definitions, by Saga, Version and Hash.
	SagaDefinitions(ctx context.Context) ([]SagaDefinition, error)
}

// SagaDefinition is a stored definition, or contract.
type SagaDefinition struct {
	Saga    string `json:"saga"`
	Version int    `json:"version"`
	Hash    string `json:"hash"`
	// Graph is its structure, as the engine wrote it.
	Graph []byte `json:"-"`
	// FirstSeen is when a process first reported it.
	FirstSeen time.Time `json:"first_seen"`
	// Processes are those that reported it and have not expired, by Engine and Process.
	Processes []SagaProcess `json:"processes,omitempty"`
}

// SagaProcess is a process that has a definition.
type SagaProcess struct {
	Engine  string `json:"engine"`
	Process string `json:"process"`
	// Seen is how long ago it last reported.
	Seen time.Duration `json:"-"`
}

// SagaMaintenance does housekeeping, each call in a transaction of its own.
type SagaMaintenance interface {
	// ReportSagas stores definitions that are new, and that this process of the engine has these and no others. The report
	// expires after ttl. Processes report when they start and then regularly; with no definitions, one takes its report back.
	ReportSagas(ctx context.Context, engine, process string, definitions []SagaDefinition, ttl time.Duration) error
	// PurgeSagas removes up to limit instances of an engine that no other instance started and that completed or were compensated at
	// least this long ago, oldest first, together with the instances they started, their history, aliases and labels. It keeps an instance
	// while one that it started, directly or not, has not ended or was abandoned. It returns how many it removed, without
	// those that they started.
	PurgeSagas(ctx context.Context, engine string, endedFor time.Duration, limit int) (int, error)
	// PurgeSagaRecords removes up to limit records of a participant that were last saved at least this long ago, oldest first, and
	// returns how many. It keeps those that are SagaStepDone and not Closed.
	PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (int, error)
}

// SagaStepState says what a participant did about a step.
type SagaStepState string

// The states of a participant's record.
const (
	SagaStepNone    SagaStepState = ""        // there was no record
	SagaStepDone    SagaStepState = "done"    // its effect happened
	SagaStepRefused SagaStepState = "refused" // it did not and will not happen
	SagaStepUndone  SagaStepState = "undone"  // it was undone
	SagaStepBlocked SagaStepState = "blocked" // it was undone before it was done; its command will be refused
	SagaStepCalling SagaStepState = "calling" // a call outside of the transaction began, and nobody knows how it ended
)

// SagaStep identifies a step of one run. Step is its path, with item and generation, 1 to 256 bytes.
type SagaStep struct{ Run, Step string }

// SagaRecord is what a participant remembers of a step.
type SagaRecord struct {
	SagaStep
	State SagaStepState
	// CommandType and Command are what it was asked, ReplyType and Reply what it answered. Stores return the same bytes.
	CommandType string
	Command     []byte
	ReplyType   string
	Reply       []byte
	// SchemaVersion is that of Command; 0 if it is not known, as in records of programs that did not keep it.
	SchemaVersion int
	// FirstSentAt is when the engine first sent the command, on the engine's database clock; zero if unknown.
	FirstSentAt time.Time
	// Closed: the engine will not ask about this run again.
	Closed bool
	// SavedAt is when the record was last saved, on the participant's database clock; zero if it never was.
	SavedAt time.Time
}

// SagaRecords keeps what participants did, in the transaction of the effect. The participant need not have the database of the
// saga. The error of its methods is ErrNoTransaction if the transaction is nil or has ended.
type SagaRecords[Tx any] interface {
	// LockSagaRecords locks the records of these steps until the end of the transaction, also those that do not exist yet, and
	// returns one for each, in the order given, and the database's time. It locks in one order, so that two calls cannot wait for
	// each other. It waits for other transactions that have locked one, and returns what they left.
	LockSagaRecords(ctx context.Context, tx Tx, participant string, steps []SagaStep) (records []SagaRecord, now time.Time, err error)
	// SaveSagaRecords writes records of different steps that this transaction has locked; it removes those of SagaStepNone. Closed and
	// SavedAt are not written. Save every locked record that did not exist, at least as SagaStepNone: some stores keep a row for
	// the lock otherwise.
	SaveSagaRecords(ctx context.Context, tx Tx, participant string, records []SagaRecord) error
	// CloseSagaRuns marks all records that the participant has of these runs as Closed.
	CloseSagaRuns(ctx context.Context, tx Tx, participant string, runs []string) error
}
