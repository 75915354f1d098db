package saga

import (
	"cmp"
	"time"

	"github.com/postrider/postrider/store"
)

// Observer has functions that are told what an engine does, for metrics. Nil ones are not called. They are called by several goroutines
// at a time, and must return at once.
type Observer struct {
	// Transitioned is called when a transition was written into a transaction, which may still be rolled back and repeated.
	Transitioned func(t Transitioned)
	// NotFound is called for a message that is dead-lettered since its instance does not exist.
	NotFound func(engine string)
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

// observe tells the observer of a transition.
func (e *Engine[Tx]) observe(t *transition) {
	o, entries := e.cfg.Observer, t.entries
	if o == nil || o.Transitioned == nil {
		return
	}
	told := Transitioned{
		SagaIdentity: t.identity, SagaCondition: t.condition(), Age: t.age, Took: t.took, Entries: entries, Since: make([]time.Duration, len(entries)),
	}
	if t.after.State.Back {
		told.TurnedBack = t.age - t.after.State.TurnedAt
	}
	if t.input == inputName(typeTimer) {
		told.TimerLag = max(t.age-t.before.State.Timer.At, 0)
	}
	for i := range entries {
		if entries[i].Step == "" {
			continue
		}
		path := cmp.Or(t.after.State.PathOf(entries[i].Step), entries[i].Step)
		if st := t.after.State.Steps[path]; st != nil {
			told.Since[i] = t.age - st.Since
		}
	}
	o.Transitioned(told)
}
