package saga

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// versionedCall is a participant with a version of a command, and its calls.
type versionedCall struct {
	*Participant[*memory.Tx]
	calls, undos int
	data, undone []keyed // of the calls
	fails        error
}

func newVersionedCall(t *testing.T, s *memory.Store, version int) *versionedCall {
	t.Helper()
	box, err := outbox.New(s, outbox.Config{Source: "rooms"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParticipant(Records[*memory.Tx](s), box, ParticipantConfig{Name: "rooms", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	v := &versionedCall{Participant: p}
	err = HandleCall(p, DefineStep[keyed, keyed]("book").WithSchemaVersion(version),
		func(_ context.Context, _ string, m postrider.Typed[keyed]) (keyed, error) {
			v.calls, v.data = v.calls+1, append(v.data, m.Data)
			return keyed{}, v.fails
		},
		func(_ context.Context, _ string, command, _ keyed) error {
			v.undos, v.undone = v.undos+1, append(v.undone, command)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// send hands a command, or its undo, of schema version 1 to the participant.
func (v *versionedCall) send(ctx context.Context, payload string, undo bool) error {
	m := &postrider.Message{ID: "m", Type: "book", Topic: "rooms", SchemaVersion: 1, Payload: []byte(payload), Headers: map[string]string{
		headerID: "1", headerRun: "run", headerStep: "book", headerReply: "replies", headerSince: time.Now().Format(time.RFC3339),
	}}
	if undo {
		m.Type, m.Payload = "book.undo", nil
	}
	return v.call(ctx, m, v.Participant.calls["book"], undo)
}

// TestCallOfUndecodableCommand: nothing was called for a command that cannot be read, so its undo blocks it and calls nothing.
func TestCallOfUndecodableCommand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version int
		payload string
	}{
		"an older version": {2, `{"Key":"k"}`},
		"not its data":     {1, `{"Key":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVersionedCall(t, memory.New(memory.Config{}), tt.version)
			if err := v.send(t.Context(), tt.payload, false); postrider.OutcomeOf(err).Reason != postrider.Undecodable {
				t.Errorf("the command: %v", err)
			}
			if err := v.send(t.Context(), "", true); err != nil || v.calls+v.undos != 0 {
				t.Errorf("the undo: %v, after %d calls and %d undos", err, v.calls, v.undos)
			}
		})
	}
}

// TestCallOfOlderVersion: a call of which nobody knows how it ended is repeated only by a process that has the version of its command.
func TestCallOfOlderVersion(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	first, second := newVersionedCall(t, s, 1), newVersionedCall(t, s, 2)
	first.fails = store.ErrNoTransaction // any error
	if err := first.send(t.Context(), `{"Key":"k"}`, false); err == nil {
		t.Fatal("the call did not fail")
	}
	first.fails = nil
	if err := second.send(t.Context(), "", true); postrider.OutcomeOf(err).Reason != postrider.Undecodable || second.calls+second.undos != 0 {
		t.Errorf("version 2: %v, after %d calls and %d undos", err, second.calls, second.undos)
	}
	if err := first.send(t.Context(), "", true); err != nil || first.calls != 2 || first.undos != 1 {
		t.Errorf("version 1: %v, after %d calls and %d undos", err, first.calls, first.undos)
	}
}

// TestCallIsRepeatedWithItsData: a call of which nobody knows how it ended has its key and its data, also if the data of the saga have changed
// before the next attempt. What it did is undone with them, too.
func TestCallIsRepeatedWithItsData(t *testing.T) {
	t.Parallel()
	v := newVersionedCall(t, memory.New(memory.Config{}), 1)
	v.fails = store.ErrNoTransaction // any error
	for _, payload := range []string{`{"Key":"first"}`, `{"Key":"second"}`} {
		if err := v.send(t.Context(), payload, false); err == nil {
			t.Fatal("the call did not fail")
		}
	}
	v.fails = nil
	for _, undo := range []bool{false, true} {
		if err := v.send(t.Context(), `{"Key":"third"}`, undo); err != nil {
			t.Fatal(err)
		}
	}
	first := keyed{"first"}
	if !slices.Equal(v.data, []keyed{first, first, first}) || !slices.Equal(v.undone, []keyed{first}) {
		t.Errorf("called with %v, and undone with %v", v.data, v.undone)
	}
}
