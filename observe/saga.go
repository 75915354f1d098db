package observe

import (
	"time"

	"github.com/postrider/postrider/store"
)

// Saga is told what an engine of sagas does (saga.Config.Observer).
type Saga struct {
	// Transitioned is called when a transition was written into a transaction, which may still be rolled back and repeated.
	Transitioned func(t Transitioned)
	// NotFound is called for a message that is dead-lettered since its instance does not exist.
	NotFound func(engine string)
	// Ignored is called for a timer or local step of an instance that was removed.
	Ignored func(engine string)
	// Conflicted is called for a start of a saga whose ID exists with other data.
	Conflicted func(saga string)
}

// Transitioned is a transition of an instance, with the condition that it leaves the instance in.
type Transitioned struct {
	store.SagaIdentity
	store.SagaCondition
	// Age is how long ago the instance was started. TurnedBack is how long ago it turned back; 0 if it has not.
	Age, TurnedBack time.Duration
	// Took is how long the transition took to make, and TimerLag how late the timer was that caused it; 0 if another message did.
	Took, TimerLag time.Duration
	// Entries say what happened, as in the history of the instance. Since is how long ago the step of each entry was started, 0 for
	// one without a step.
	Entries []store.SagaEntry
	Since   []time.Duration
}
