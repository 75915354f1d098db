package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// deadText is the content of the DeadHeader.
type deadText struct {
	Reason string `json:"reason"`
	Cause  string `json:"cause"`
}

// withDead returns a message with the DeadHeader.
func withDead(m *postrider.Message, f *fate) *postrider.Message {
	text, err := json.Marshal(deadText{stored.Text(f.reason), stored.Text(f.cause)})
	if err != nil {
		panic(err) // texts always marshal
	}
	return withHeader(m, DeadHeader, string(text))
}

// withHeader returns a copy of a message with a further header.
func withHeader(m *postrider.Message, name, value string) *postrider.Message {
	out := *m
	if out.Headers = maps.Clone(m.Headers); out.Headers == nil {
		out.Headers = make(map[string]string, 1)
	}
	out.Headers[name] = value
	return &out
}

// withoutOwnHeaders returns a parked message without what only this package reads, except the OriginalHeader.
func withoutOwnHeaders(m *postrider.Message) *postrider.Message {
	if m.Headers[PositionHeader] == "" && m.Headers[DeadHeader] == "" {
		return m
	}
	out := *m
	out.Headers = maps.Clone(m.Headers)
	delete(out.Headers, PositionHeader)
	delete(out.Headers, DeadHeader)
	return &out
}

// dead returns the error for which a message is dead-lettered at its turn.
func dead(m *postrider.Message) error {
	var text deadText
	if err := json.Unmarshal([]byte(m.Headers[DeadHeader]), &text); err != nil {
		return fmt.Errorf("the header %s, which says why the message failed, cannot be read: %w", DeadHeader, err)
	}
	if text.Cause == "" {
		return postrider.Dead(text.Reason, nil)
	}
	return postrider.Dead(text.Reason, errors.New(text.Cause))
}

// Due implements store.Log. The turn of a message that failed on arrival has come: the relay dead-letters it.
func (s parkedStore) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	res, err := s.Relay.Due(ctx, name, req)
	for _, run := range res.Runs {
		for i := range run.Entries {
			if e := &run.Entries[i]; e.Reason == store.ParkFailed {
				e.Err = dead(e.Message)
			}
		}
	}
	return res, err
}
