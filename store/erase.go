package store

import (
	"context"
	"fmt"

	"github.com/postrider/postrider"
)

// ErasedType is the type of a message that was erased. Only ID, topic, source and times are left of it. Relays skip it.
const ErasedType = "postrider.erased"

// ErasedContentType is the content type of an erased message.
const ErasedContentType = "application/octet-stream"

// Erased returns what is left of a message once it is erased.
func Erased(m *postrider.Message) *postrider.Message {
	return &postrider.Message{
		Sequence: m.Sequence, ID: m.ID, Topic: m.Topic, Type: ErasedType, Source: m.Source, Time: m.Time, CreatedAt: m.CreatedAt,
		ContentType: ErasedContentType,
	}
}

// EraseFilter selects messages to erase: those of a key, those of a tenant, or those with an ID. One field is set.
type EraseFilter struct{ Key, Tenant, MessageID string }

// Validate reports whether one field is set.
func (f EraseFilter) Validate() error {
	set := 0
	for _, value := range []string{f.Key, f.Tenant, f.MessageID} {
		if value != "" {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("name one of key, tenant and message ID; %d are given", set)
	}
	return nil
}

// Matches reports whether the filter selects a message.
func (f EraseFilter) Matches(key, tenant, id string) bool {
	switch {
	case f.Key != "":
		return f.Key == key
	case f.Tenant != "":
		return f.Tenant == tenant
	}
	return f.MessageID == id
}

// EraseWriter erases messages, in one transaction. It also removes the attempts on record (postrider.AttemptLog) of the messages that
// it erases.
type EraseWriter interface {
	// EraseLogged erases messages of the log, of which only Sequence, Partition and ID are used, and returns how many were there and
	// not erased yet. It ends the leases of the relays that have not delivered them yet: no process has them in memory when they are
	// parked or dead-lettered, which copies them from the log.
	EraseLogged(ctx context.Context, messages []LoggedMessage) (int, error)
	// EraseParked removes up to limit parked messages of relays and consumers, queued or not, and ends the leases of their
	// partitions. It returns what it removed. It leaves held keys as they are.
	EraseParked(ctx context.Context, f EraseFilter, limit int) ([]ErasedParked, error)
	// EraseDead erases up to limit dead letters that are not open, with their causes, histories and edits, and returns how many.
	EraseDead(ctx context.Context, f EraseFilter, limit int) (int, error)
}

// ErasedParked is a parked message that was removed.
type ErasedParked struct{ Relay, Key string }

// EraseReader counts what can be erased.
type EraseReader interface {
	// CountErasable counts the parked messages and the dead letters that a filter selects, without those that are erased.
	CountErasable(ctx context.Context, f EraseFilter) (parked, dead int64, err error)
}
