// Package erasure removes what messages contain, e.g. because a person has the right to it:
//
//	e, err := erasure.New(store).Erase(ctx, erasure.Plan{Key: "customer/42", By: "ann", Reason: "request 1217"}, nil)
//
// It covers all messages of a key or of a tenant, or those with an ID, that are committed when it begins. What is left of a message is its
// place in the log: ID, topic, source and times. What was delivered before cannot be taken back.
//
//	where                | what an erasure does
//	log                  | empties the message. Relays skip it, and replays leave it out
//	parked messages      | removes them. Their held keys go on with the next queued message
//	dead letters         | discards open ones, and empties all of them, with their edits, causes and histories
//	attempts on record   | removes them
//	calls in progress    | go on. Their outcomes are not recorded, but attempts on record are, until they expire
//
// An erasure ends the leases of relays that have such a message in memory; they acquire them again and read on from the database. What they
// were working on in the same partitions may be delivered twice.
//
// # What is not erased
//
//   - messages of transactions that commit later. Stop what publishes about the person, and then erase
//   - what brokers, receivers, log files, backups and replicas have, and files of postrider dead export. Importing one of these files
//     brings its messages back
//   - records of what operators did, with the keys that they typed, and the data of sagas, which are purged by their age
//   - IDs. Do not put personal data into the ID of a message
//   - the old versions of rows, until the database has removed them (docs/operations/erasure.md)
package erasure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/postrider/postrider/store"
)

// Plan says what to erase: exactly one of Key, Tenant and MessageID is set.
type Plan struct {
	Key, Tenant, MessageID string
	// By is who decided it and Reason why, for the record.
	By, Reason string
}

func (p *Plan) filter() store.EraseFilter {
	return store.EraseFilter{Key: p.Key, Tenant: p.Tenant, MessageID: p.MessageID}
}

// Validate reports the errors in a plan.
func (p *Plan) Validate() error { return p.filter().Validate() }

// subject returns what a plan selects messages by, the value, and its digest.
func (p *Plan) subject() (what Subject, value, digest string) {
	what, value = MessageID, p.MessageID
	switch {
	case p.Key != "":
		what, value = Key, p.Key
	case p.Tenant != "":
		what, value = Tenant, p.Tenant
	}
	sum := sha256.Sum256([]byte(string(what) + "\x00" + value))
	return what, value, hex.EncodeToString(sum[:])
}

// Subject is what an erasure selects messages by.
type Subject string

// The subjects.
const (
	Key       Subject = "key"
	Tenant    Subject = "tenant"
	MessageID Subject = "message ID"
)

// Erasure is an erasure on record. Once it has ended, the record has a digest of the key, tenant or ID, by which Of recognizes it, and not
// the value itself.
type Erasure struct {
	ID      string  `json:"id"`
	Subject Subject `json:"subject"`
	// Digest is a SHA-256, in hexadecimal. Who can guess the value can recognize it.
	Digest string `json:"digest"`
	// Value is the key, tenant or ID, until the erasure has ended: Resume needs it.
	Value  string `json:"value,omitempty"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	// ResumedBy is who resumed it last.
	ResumedBy string    `json:"resumed_by,omitempty"`
	StartedAt time.Time `json:"started_at"`
	// EndedAt is zero if it was interrupted, or is running. Then Resume erases what is left.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// EndedWith is the ID of a later erasure of the same subject, if that erased what was left.
	EndedWith string `json:"ended_with,omitempty"`
	// Position is the sequence up to which the log is erased, UpTo the last sequence when the erasure began.
	Position int64 `json:"position,string"`
	UpTo     int64 `json:"up_to,string"`
	// ChangedAt is when the last step was taken.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	Erased
}

// Errors of erasures.
var (
	// ErrNoErasure: no erasure has this ID.
	ErrNoErasure = errors.New("no such erasure")
	// ErrEnded: there is nothing left of the erasure to resume.
	ErrEnded = errors.New("the erasure has ended")
)

// Ended reports whether nothing is left to erase.
func (e *Erasure) Ended() bool { return !e.EndedAt.IsZero() }

// filter selects the messages of an erasure that has not ended.
func (e *Erasure) filter() (f store.EraseFilter) {
	switch e.Subject {
	case Key:
		f.Key = e.Value
	case Tenant:
		f.Tenant = e.Value
	case MessageID:
		f.MessageID = e.Value
	}
	return f
}

// Erased counts messages: in the log, parked, and dead letters. One message may be in several of them.
type Erased struct {
	Logged      int64 `json:"logged"`
	Parked      int64 `json:"parked"`
	DeadLetters int64 `json:"dead_letters"`
}

// Store is the erasures of a store.
type Store struct{ records store.Records }

// New returns the erasures of a store: of store/postgres, store/mysql, store/sqlite or store/memory.
func New(r store.Records) Store { return Store{r} }

// Count counts what an erasure would erase. It reads the whole log, without payloads. Errors: those of Plan.Validate.
func (s Store) Count(ctx context.Context, p Plan) (n Erased, err error) {
	if err := p.Validate(); err != nil {
		return n, err
	}
	op := store.Operation{Method: "CountErasure", Doing: "count the messages of an erasure"}
	var end int64
	err = s.records.View(ctx, op, func(r store.Reader) (err error) {
		if end, err = r.LogEnd(ctx); err == nil {
			n.Parked, n.DeadLetters, err = r.CountErasable(ctx, p.filter())
		}
		return err
	})
	for after := int64(0); err == nil && after < end; {
		err = s.records.View(ctx, op, func(r store.Reader) (err error) {
			var found []store.LoggedMessage
			found, after, err = page(ctx, r, p.filter(), after, end)
			n.Logged += int64(len(found))
			return err
		})
	}
	return n, err
}
