package stored

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// The columns of an instance of a saga. Their names are the same in every database; times are microseconds.
const (
	sagaIdentity  = `s.run, s.id, s.engine, s.saga, s.version, s.hash, s.kind, s.saga_key, s.parent_run, s.parent_step, s.correlation_id, s.tenant`
	sagaCondition = `s.status, s.direction, s.paused, s.past_pivot, s.cause, s.detail, s.waiting, s.obligations, s.released`
	sagaRest      = `s.deadline_us, s.timer_us, s.holds_key, s.rev`
	sagaBody      = `, s.timer_id, s.state, s.data, s.token`
)

// SagaColumns returns the columns of a summary for SagaRow.Summarized. The table is s; now is the database's time in microseconds,
// and micros makes microseconds of a column that is a time or null.
func SagaColumns(now string, micros func(column string) string) string {
	columns := []string{sagaIdentity, sagaCondition, sagaRest, now}
	for _, c := range []string{"s.started_at", "s.updated_at", "s.stuck_at", "s.ended_at"} {
		columns = append(columns, `coalesce(`+micros(c)+`, 0)`)
	}
	return strings.Join(columns, ", ")
}

// SagaInstanceColumns returns the columns of an instance, for SagaRow.Loaded.
func SagaInstanceColumns(now string, micros func(column string) string) string {
	return SagaColumns(now, micros) + sagaBody
}

// SagaChanged are the columns that transitions change, in the order of SagaChangedValues; SagaFixed are those that never change,
// in the order of SagaFixedValues.
const (
	SagaChanged = `status, direction, paused, past_pivot, cause, detail, waiting, obligations, released, deadline_us, timer_us, timer_id, state, data`
	SagaFixed   = `run, id, engine, saga, version, hash, kind, saga_key, parent_run, parent_step, correlation_id, tenant, token`
)

// SagaChangedValues returns what a transition leaves, with long texts truncated.
func SagaChangedValues(c store.SagaCondition, t store.SagaTimes, b store.SagaBody) []any {
	return []any{
		string(c.Status), string(c.Direction), c.Paused, c.PastPivot, c.Cause, Text(c.Detail), Text(c.Waiting), c.Obligations, c.Released,
		t.Deadline.Microseconds(), t.TimerAt.Microseconds(), b.TimerID, Bytes(b.State), Bytes(b.Data),
	}
}

// SagaFixedValues returns what never changes about a new instance.
func SagaFixedValues(st store.SagaStart) []any {
	return []any{
		st.Run, st.ID, st.Engine, st.Saga, st.Version, st.Hash, string(st.Kind), st.Key, st.ParentRun, st.ParentStep, st.CorrelationID,
		st.Tenant, st.Token,
	}
}

// SagaRow reads the rows of a result.
type SagaRow struct {
	i                                                    store.SagaInstance
	deadline, timer, now, started, updated, stuck, ended int64
}

func (r *SagaRow) dest() []any {
	i := &r.i
	return []any{
		&i.Run, &i.ID, &i.Engine, &i.Saga, &i.Version, &i.Hash, &i.Kind, &i.Key, &i.ParentRun, &i.ParentStep, &i.CorrelationID, &i.Tenant,
		&i.Status, &i.Direction, &i.Paused, &i.PastPivot, &i.Cause, &i.Detail, &i.Waiting, &i.Obligations, &i.Released,
		&r.deadline, &r.timer, &i.HoldsKey, &i.Rev, &r.now, &r.started, &r.updated, &r.stuck, &r.ended,
	}
}

// Instance reads a row of SagaInstanceColumns.
func (r *SagaRow) Instance(scan func(dest ...any) error) (store.SagaInstance, error) {
	i := &r.i
	i.State, i.Data = nil, nil // each row gets its own memory
	if err := scan(append(r.dest(), &i.TimerID, &i.State, &i.Data, &i.Token)...); err != nil {
		return store.SagaInstance{}, err
	}
	r.complete()
	return r.i, nil
}

// Summary reads a row of SagaColumns.
func (r *SagaRow) Summary(scan func(dest ...any) error) (store.SagaSummary, error) {
	if err := scan(r.dest()...); err != nil {
		return store.SagaSummary{}, err
	}
	r.complete()
	i := r.i
	return store.SagaSummary{
		SagaIdentity: i.SagaIdentity, SagaCondition: i.SagaCondition, HoldsKey: i.HoldsKey, Rev: i.Rev, Age: i.Age,
		StartedAt: i.StartedAt, UpdatedAt: i.UpdatedAt, StuckAt: i.StuckAt, EndedAt: i.EndedAt,
		DeadlineAt: after(i.StartedAt, i.Deadline), TimerAt: after(i.StartedAt, i.SagaTimes.TimerAt),
	}, nil
}

func (r *SagaRow) complete() {
	i := &r.i
	i.Deadline, i.SagaTimes.TimerAt = Duration(r.deadline), Duration(r.timer)
	i.Age = Duration(r.now - r.started)
	i.StartedAt, i.UpdatedAt, i.StuckAt, i.EndedAt = Time(r.started), Time(r.updated), OptionalTime(r.stuck), OptionalTime(r.ended)
}

// after returns the time that is this long after another; the zero time for 0.
func after(start time.Time, d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return start.Add(d)
}

// OptionalTime converts a stored time, 0 to the zero time.
func OptionalTime(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return Time(micros)
}

// Purgeable reports whether instances of this status are purged once they are old enough.
func Purgeable(s store.SagaStatus) bool {
	return s == store.SagaCompleted || s == store.SagaCompensated
}

// Entries encodes the entries of a transition as JSON, "" if there are none.
func Entries(entries []store.SagaEntry) (string, error) {
	if len(entries) == 0 {
		return "", nil
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return "", fmt.Errorf("entries of a transition: %w", err)
	}
	return string(text), nil
}

// TransitionValues returns the values of a row of history: run, rev, input, step, message ID, actor, note, entries, patch.
func TransitionValues(run string, rev int64, t store.SagaTransition) ([]any, error) {
	entries, err := Entries(t.Entries)
	return []any{run, rev, t.Input, t.Step, t.MessageID, t.Actor, Text(t.Note), entries, Bytes(t.Patch)}, err
}

// Transition reads a row: rev, at in microseconds, input, step, message ID, actor, note, entries, patch.
func Transition(scan func(dest ...any) error) (t store.SagaTransition, err error) {
	var at int64
	var entries string
	if err := scan(&t.Rev, &at, &t.Input, &t.Step, &t.MessageID, &t.Actor, &t.Note, &entries, &t.Patch); err != nil {
		return t, err
	}
	t.At = Time(at)
	if entries != "" {
		err = json.Unmarshal([]byte(entries), &t.Entries)
	}
	return t, err
}

// Record reads a row: run, step, state, type of command, command, type of reply, reply, first sent and saved in microseconds,
// closed, schema version. A record of which only the lock exists is empty.
func Record(scan func(dest ...any) error) (r store.SagaRecord, err error) {
	var first, saved int64
	err = scan(&r.Run, &r.Step, &r.State, &r.CommandType, &r.Command, &r.ReplyType, &r.Reply, &first, &saved, &r.Closed, &r.SchemaVersion)
	if err != nil || r.State == store.SagaStepNone {
		return store.SagaRecord{SagaStep: r.SagaStep}, err
	}
	r.FirstSentAt, r.SavedAt = OptionalTime(first), Time(saved)
	return r, nil
}

// FirstSent returns the time of a record in microseconds, 0 for the zero time.
func FirstSent(r store.SagaRecord) int64 {
	if r.FirstSentAt.IsZero() {
		return 0
	}
	return r.FirstSentAt.UnixMicro()
}

// RecordPurgeable reports whether a record of this state is purged once it is old enough although its run is not closed.
func RecordPurgeable(s store.SagaStepState) bool { return s != store.SagaStepDone }

// Bytes returns b, or empty bytes for nil, which a driver would bind as NULL.
func Bytes(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
