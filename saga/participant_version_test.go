package saga

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// The data of three schema versions of a command.
type (
	inDays    struct{ Days int }
	inHours   struct{ Hours int }
	inMinutes struct{ Minutes int }
)

var (
	stayInDays    = DefineStep[inDays, keyed]("stay")
	stayInHours   = DefineStep[inHours, keyed]("stay").WithSchemaVersion(2)
	stayInMinutes = DefineStep[inMinutes, keyed]("stay").WithSchemaVersion(3)
)

// program is a release of a participant's program, which does a step in a transaction or by a call, with what its handlers have been given.
type program struct {
	*Participant[*memory.Tx]
	store    *memory.Store
	version  int
	byCall   bool
	do, undo []string
	fails    error
}

// release returns the program that has a version of the step, and upcasters from those before.
func release(t *testing.T, s *memory.Store, version int, byCall bool) *program {
	t.Helper()
	box, err := outbox.New(s, outbox.Config{Source: "rooms"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParticipant(Records[*memory.Tx](s), box, ParticipantConfig{Name: "rooms", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &program{Participant: p, store: s, version: version, byCall: byCall}
	days := func(d inDays) (inHours, error) { return inHours{24 * d.Days}, nil }
	minutes := func(h inHours) (inMinutes, error) { return inMinutes{60 * h.Hours}, nil }
	switch version {
	case 1:
		err = handleRelease(r, stayInDays)
	case 2:
		err = errors.Join(handleRelease(r, stayInHours), Upcast(p, stayInDays, stayInHours, days))
	default:
		err = errors.Join(handleRelease(r, stayInMinutes), Upcast(p, stayInHours, stayInMinutes, minutes), Upcast(p, stayInDays, stayInHours, days))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func handleRelease[C any](r *program, s StepDefinition[C, keyed]) error {
	did := func(m postrider.Typed[C]) (keyed, error) {
		r.do = append(r.do, fmt.Sprintf("%+v v%d", m.Data, m.SchemaVersion))
		return keyed{"done"}, r.fails
	}
	undid := func(command C, reply keyed) error {
		r.undo = append(r.undo, fmt.Sprintf("%+v %s", command, reply.Key))
		return nil
	}
	if r.byCall {
		return HandleCall(r.Participant, s,
			func(_ context.Context, _ string, m postrider.Typed[C]) (keyed, error) { return did(m) },
			func(_ context.Context, _ string, command C, reply keyed) error { return undid(command, reply) })
	}
	return Handle(r.Participant, s,
		func(_ context.Context, _ *memory.Tx, m postrider.Typed[C]) (keyed, error) { return did(m) },
		func(_ context.Context, _ *memory.Tx, command C, reply keyed) error { return undid(command, reply) })
}

// send hands a command of a schema version to the program, or its undo.
func (r *program) send(ctx context.Context, version int, payload string, undo bool) error {
	m := &postrider.Message{ID: "m", Type: "stay", Topic: "rooms", SchemaVersion: version, Payload: []byte(payload), Headers: map[string]string{
		headerID: "1", headerRun: "run", headerStep: "stay", headerReply: "replies", headerSince: time.Now().Format(time.RFC3339),
	}}
	if undo {
		m.Type, m.Payload = "stay.undo", nil
	}
	if r.byCall {
		return r.call(ctx, m, r.calls["stay"], undo)
	}
	return r.inTx(ctx, m, r.handlers["stay"], undo)
}

// change changes the record of the step.
func (r *program) change(t *testing.T, edit func(r *store.SagaRecord)) (record store.SagaRecord) {
	t.Helper()
	_, err := r.box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		records, _, err := r.store.LockSagaRecords(ctx, tx, "rooms", []store.SagaStep{{Run: "run", Step: "stay"}})
		if err != nil {
			return err
		}
		if record = records[0]; edit == nil {
			return nil
		}
		edit(&record)
		return r.store.SaveSagaRecords(ctx, tx, "rooms", []store.SagaRecord{record})
	})
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// inBoth runs a test with steps that are done in transactions, and by calls.
func inBoth(t *testing.T, test func(t *testing.T, byCall bool)) {
	t.Helper()
	for name, byCall := range map[string]bool{"in a transaction": false, "by a call": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, byCall)
		})
	}
}

func wantHandled(t *testing.T, what string, err error, got []string, want ...string) {
	t.Helper()
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v; its handler got %q, want %q", what, err, got, want)
	}
}

// TestUndoAfterUpgrade: an undo gets the command in the version of its program, whichever version did the step.
func TestUndoAfterUpgrade(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, byCall bool) {
		t.Helper()
		for version, want := range map[int]string{1: "{Days:2} done", 2: "{Hours:48} done", 3: "{Minutes:2880} done"} {
			s := memory.New(memory.Config{})
			first, second := release(t, s, 1, byCall), release(t, s, version, byCall)
			wantHandled(t, "the command", first.send(t.Context(), 1, `{"Days":2}`, false), first.do, "{Days:2} v1")
			wantHandled(t, "the undo", second.send(t.Context(), 0, "", true), second.undo, want)
		}
	})
}

// TestUndoByAnOlderVersion: during a rolling update, the undo of a step that a newer version did waits for a process of that.
func TestUndoByAnOlderVersion(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, byCall bool) {
		t.Helper()
		s := memory.New(memory.Config{})
		older, newer := release(t, s, 1, byCall), release(t, s, 2, byCall)
		wantHandled(t, "the command", newer.send(t.Context(), 2, `{"Hours":48}`, false), newer.do, "{Hours:48} v2")
		if err := older.send(t.Context(), 0, "", true); !errors.Is(err, postrider.ErrUnhandled) || len(older.undo) > 0 {
			t.Errorf("the undo: %v, want ErrUnhandled; its handler got %q", err, older.undo)
		}
		wantHandled(t, "the undo", newer.send(t.Context(), 0, "", true), newer.undo, "{Hours:48} done")
	})
}

// TestCommandOfAnOlderVersion: the handler gets a command as that of its version, and the record has it as it came, so that a process of
// the older version can undo it.
func TestCommandOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, byCall bool) {
		t.Helper()
		s := memory.New(memory.Config{})
		older, newer := release(t, s, 1, byCall), release(t, s, 3, byCall)
		wantHandled(t, "the command", newer.send(t.Context(), 0, `{"Days":2}`, false), newer.do, "{Minutes:2880} v3") // without a version, it has 1
		if r := newer.change(t, nil); r.SchemaVersion != 1 || string(r.Command) != `{"Days":2}` {
			t.Errorf("the record has version %d: %s", r.SchemaVersion, r.Command)
		}
		wantHandled(t, "the undo", older.send(t.Context(), 0, "", true), older.undo, "{Days:2} done")
	})
}

// TestUndoOfARecordWithoutVersion: a program that keeps no versions in records did the step, before an upgrade or alongside the new program.
func TestUndoOfARecordWithoutVersion(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, byCall bool) {
		t.Helper()
		for version, want := range map[int]string{1: "{Days:2} done", 3: "{Minutes:2880} done"} {
			s := memory.New(memory.Config{})
			first, second := release(t, s, 1, byCall), release(t, s, version, byCall)
			wantHandled(t, "the command", first.send(t.Context(), 1, `{"Days":2}`, false), first.do, "{Days:2} v1")
			first.change(t, func(r *store.SagaRecord) { r.SchemaVersion = 0 })
			wantHandled(t, "the undo", second.send(t.Context(), 0, "", true), second.undo, want)
		}
	})
}

// TestCallAfterUpgrade: a version of a program left a record that says that a call had begun. The next version repeats the call, when its
// command comes again and when its undo comes first, whether the record has the version of the command, or has it as the reply, where
// older programs kept it.
func TestCallAfterUpgrade(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(r *store.SagaRecord){
		"with its version":  nil,
		"of an old program": func(r *store.SagaRecord) { r.SchemaVersion, r.Reply = 0, []byte("2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, undo := range []bool{false, true} {
				s := memory.New(memory.Config{})
				first, second := release(t, s, 2, true), release(t, s, 3, true)
				first.fails = store.ErrNoTransaction // any error: the answer is lost
				if err := first.send(t.Context(), 2, `{"Hours":48}`, false); err == nil {
					t.Fatal("the call did not fail")
				}
				if r := first.change(t, edit); r.State != store.SagaStepCalling {
					t.Fatalf("the record is %q", r.State)
				}
				if !undo {
					wantHandled(t, "the command", second.send(t.Context(), 2, `{"Hours":48}`, false), second.do, "{Minutes:2880} v3")
				}
				err := second.send(t.Context(), 0, "", true)
				wantHandled(t, "the call", err, second.do, "{Minutes:2880} v3")
				wantHandled(t, "the undo", err, second.undo, "{Minutes:2880} done")
			}
		})
	}
}

// TestCallSharedWithAnOldProgram: programs that keep no versions in records find that of a call that a newer one has begun, and what they
// write counts.
func TestCallSharedWithAnOldProgram(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	older, newer := release(t, s, 1, true), release(t, s, 2, true)
	older.fails, newer.fails = store.ErrNoTransaction, store.ErrNoTransaction // any error: the answers are lost
	if newer.send(t.Context(), 2, `{"Hours":48}`, false) == nil {
		t.Fatal("the call did not fail")
	}
	newer.change(t, func(r *store.SagaRecord) { r.SchemaVersion = 0 }) // as the old program sees it
	if err := older.send(t.Context(), 0, "", true); !errors.Is(err, postrider.ErrUnhandled) || len(older.do) > 0 {
		t.Errorf("the undo: %v, want ErrUnhandled; it has called with %q", err, older.do)
	}
	if older.send(t.Context(), 1, `{"Days":2}`, false) == nil {
		t.Fatal("the call did not fail")
	}
	newer.change(t, func(r *store.SagaRecord) { r.SchemaVersion = 2 }) // which the old program has left as it was
	newer.fails, newer.do = nil, nil
	err := newer.send(t.Context(), 0, "", true)
	wantHandled(t, "the call", err, newer.do, "{Hours:48} v2")
	wantHandled(t, "the undo", err, newer.undo, "{Hours:48} done")
}

// TestUpcastIsChecked: what cannot be an upcaster is an error.
func TestUpcastIsChecked(t *testing.T) {
	t.Parallel()
	p := release(t, memory.New(memory.Config{}), 2, false).Participant
	convert := func(h inHours) (inDays, error) { return inDays{h.Hours / 24}, nil }
	days := func(d inDays) (inHours, error) { return inHours{24 * d.Days}, nil }
	if err := Upcast(p, stayInDays, stayInHours, days); !errors.Is(err, postrider.ErrDuplicateDefinition) {
		t.Errorf("the same again: %v", err)
	}
	if Upcast(p, stayInHours, stayInDays, convert) == nil {
		t.Error("an upcaster leads to an older version")
	}
	if Upcast[*memory.Tx, inHours, inMinutes](p, stayInHours, stayInMinutes, nil) == nil {
		t.Error("an upcaster has no function")
	}
}
