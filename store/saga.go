package store

import (
	"slices"
	"time"
)

// SagaStatus is the status of an instance of a saga.
type SagaStatus string

// The statuses of an instance. The last three end it; a late reply may reopen an ended instance.
const (
	SagaRunning      SagaStatus = "running"
	SagaCompensating SagaStatus = "compensating"
	SagaStuck        SagaStatus = "stuck" // an operator has to decide
	SagaCompleted    SagaStatus = "completed"
	SagaCompensated  SagaStatus = "compensated"
	SagaAbandoned    SagaStatus = "abandoned" // ended by an operator, with obligations open
)

// SagaStatuses are all statuses, those that end an instance last.
var SagaStatuses = []SagaStatus{SagaRunning, SagaCompensating, SagaStuck, SagaCompleted, SagaCompensated, SagaAbandoned}

// OpenSagaStatuses are those of instances that have not ended.
var OpenSagaStatuses = SagaStatuses[:3]

// Ended reports whether an instance of this status has ended.
func (s SagaStatus) Ended() bool { return slices.Contains(SagaStatuses[3:], s) }

// SagaDirection is the direction in which an instance works.
type SagaDirection string

// The directions.
const (
	SagaForward SagaDirection = "forward"
	SagaBack    SagaDirection = "back"
)

// SagaKind says who leads a saga.
type SagaKind string

// The kinds of sagas.
const (
	SagaOrchestrated  SagaKind = "orchestrated"  // a definition with steps
	SagaChoreographed SagaKind = "choreographed" // a contract between services
)

// SagaIdentity is what never changes about an instance.
type SagaIdentity struct {
	// Run identifies the instance, also after its ID is used again: 1 to 64 characters of ASCII. A UUIDv7
	// (postrider.NewID), since lists are in the order of Run.
	Run string `json:"run"`
	// ID is the caller's, 1 to 64 bytes. No two stored instances have the same.
	ID string `json:"id"`
	// Engine is the name of the engine that works on it; Saga, Version, Hash and Kind say by which definition.
	Engine  string   `json:"engine"`
	Saga    string   `json:"saga"`
	Version int      `json:"version"`
	Hash    string   `json:"hash"`
	Kind    SagaKind `json:"kind"`
	// Key, if there is one, is held by at most one instance of a saga at a time: from its creation until it first ends. A
	// reopened instance does not hold it again.
	Key string `json:"key,omitempty"`
	// ParentRun is the instance that started this one in its step ParentStep, "" if none did.
	ParentRun     string `json:"parent_run,omitempty"`
	ParentStep    string `json:"parent_step,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	Tenant        string `json:"tenant,omitempty"`
}

// SagaCondition is the condition that a transition leaves an instance in, as far as tools and filters read it. What only the
// engine reads is in SagaInstance.State.
type SagaCondition struct {
	Status    SagaStatus    `json:"status"`
	Direction SagaDirection `json:"direction"`
	Paused    bool          `json:"paused,omitempty"`
	// PastPivot: there is no way back.
	PastPivot bool `json:"past_pivot,omitempty"`
	// Cause says why the instance is compensating, stuck or was compensated: short, and the same for similar failures, up to
	// 64 bytes. Detail is the failure itself. Stores truncate Detail and Waiting to 4,000 bytes.
	Cause  string `json:"cause,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Waiting names what the instance waits for, e.g. steps; "" if it waits for nothing.
	Waiting string `json:"waiting,omitempty"`
	// Obligations counts the steps that were started and are neither refused nor undone; Released those of them that an
	// operator released.
	Obligations int `json:"obligations,omitempty"`
	Released    int `json:"released,omitempty"`
}

// SagaTimes are durations since the start of an instance; 0 means none.
type SagaTimes struct {
	// Deadline is the deadline of the whole instance.
	Deadline time.Duration
	// TimerAt is when its timer is due.
	TimerAt time.Duration
}

// SagaBody is what the engine keeps for itself. Stores return the same bytes and never look inside.
type SagaBody struct {
	// State is the engine's, Data the user's.
	State, Data []byte
	// TimerID identifies the message that is the instance's timer, up to 64 bytes.
	TimerID string
}

// SagaInstance is one instance of a saga, as SagaStore.LoadSagas returns it.
type SagaInstance struct {
	SagaIdentity
	SagaCondition
	SagaTimes
	SagaBody
	// Token is a secret that replies echo, up to 64 bytes.
	Token string
	// HoldsKey: no other instance of the saga can have the same Key.
	HoldsKey bool
	// Rev rises by one with each transition; the one that creates the instance is 1.
	Rev int64
	// Age is the time since StartedAt when it was read. These times, and all durations, are of the database's clock. StuckAt
	// and EndedAt are zero unless it is stuck or ended.
	Age       time.Duration
	StartedAt time.Time
	UpdatedAt time.Time
	StuckAt   time.Time
	EndedAt   time.Time
}

// SagaSummary is an instance as lists show it.
type SagaSummary struct {
	SagaIdentity
	SagaCondition
	HoldsKey bool  `json:"holds_key,omitempty"`
	Rev      int64 `json:"rev"`
	// Age is the time since StartedAt when it was read; the times are those of the database's clock.
	Age        time.Duration `json:"-"`
	StartedAt  time.Time     `json:"started_at"`
	UpdatedAt  time.Time     `json:"updated_at"`
	DeadlineAt time.Time     `json:"deadline_at,omitzero"`
	TimerAt    time.Time     `json:"timer_at,omitzero"`
	StuckAt    time.Time     `json:"stuck_at,omitzero"`
	EndedAt    time.Time     `json:"ended_at,omitzero"`
}

// SagaAlias is another way to find an instance, e.g. the ID that a payment provider gave to a payment. Both are up to 256 bytes.
type SagaAlias struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SagaStart is a new instance. Its first transition has Rev 1.
type SagaStart struct {
	SagaIdentity
	// SagaCondition: a new instance has not ended. One that ends at once is created and then saved.
	SagaCondition
	SagaTimes
	SagaBody
	Token   string
	Aliases []SagaAlias
	// Labels are for search: names of up to 64 bytes, values of up to 256.
	Labels     map[string]string
	Transition SagaTransition
}

// SagaChange is what transitions leave of an instance.
type SagaChange struct {
	Run string
	// Rev is the new one: the one that was loaded plus the number of Transitions.
	Rev int64
	SagaCondition
	SagaTimes
	SagaBody
	// Aliases are added; those that the instance has already are kept.
	Aliases []SagaAlias
	// Labels are added or replaced; an empty value removes the label.
	Labels map[string]string
	// Transitions, at least one, in order. The last one has this Rev.
	Transitions []SagaTransition
}

// SagaTransition is one entry of an instance's history. History is only ever appended to.
type SagaTransition struct {
	// Rev and At are assigned by the store.
	Rev int64     `json:"rev"`
	At  time.Time `json:"at"`
	// Input is what the instance handled, e.g. "reply"; Step is the step concerned, and MessageID the message that brought it.
	Input     string `json:"input"`
	Step      string `json:"step,omitempty"`
	MessageID string `json:"message_id,omitempty"`
	// Actor is the operator, Note the operator's reason or the failure. Stores truncate Note to 4,000 bytes.
	Actor string `json:"actor,omitempty"`
	Note  string `json:"note,omitempty"`
	// Entries say what happened, in order.
	Entries []SagaEntry `json:"entries,omitempty"`
	// Patch is the change of the user's data, as the engine wrote it. Stores never look inside.
	Patch []byte `json:"-"`
}

// SagaEntry is one thing that happened in a transition, e.g. "step.done" of a step.
type SagaEntry struct {
	Name string `json:"name"`
	Step string `json:"step,omitempty"`
	// Text is for people.
	Text string `json:"text,omitempty"`
}

// SagaLookup finds an instance by one of: its ID; the Key of a Saga, if it holds the key; an Alias of a Saga, also after its end.
type SagaLookup struct {
	ID        string
	Saga, Key string
	Alias     SagaAlias
}

// SagaFilter selects instances; zero fields match all.
type SagaFilter struct {
	Engine  string `json:"engine,omitempty"`
	Saga    string `json:"saga,omitempty"`
	Version int    `json:"version,omitempty"`
	// Status selects instances of any of these statuses.
	Status        []SagaStatus `json:"status,omitempty"`
	Key           string       `json:"key,omitempty"`
	ParentRun     string       `json:"parent_run,omitempty"`
	CorrelationID string       `json:"correlation_id,omitempty"`
	Tenant        string       `json:"tenant,omitempty"`
	Cause         string       `json:"cause,omitempty"`
	// WaitingFor is a case-sensitive substring of Waiting.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Labels selects instances that have all of them.
	Labels map[string]string `json:"labels,omitempty"`
	// Paused selects those that are paused; Overdue those whose deadline has passed and that have not ended.
	Paused  bool `json:"paused,omitempty"`
	Overdue bool `json:"overdue,omitempty"`
	// OlderThan is the minimum time since their start.
	OlderThan time.Duration `json:"older_than,omitempty"`
}

// SagaCount counts the instances that have not ended, by all its text fields.
type SagaCount struct {
	Engine    string        `json:"engine"`
	Saga      string        `json:"saga"`
	Version   int           `json:"version"`
	Kind      SagaKind      `json:"kind"`
	Status    SagaStatus    `json:"status"`
	Direction SagaDirection `json:"direction"`
	Count     int64         `json:"count"`
	// Oldest is the time since the start of the oldest one.
	Oldest time.Duration `json:"-"`
}
