package saga

import (
	"time"

	"github.com/postrider/postrider/store"
)

// Observer has a function that is told what an engine does, for metrics.
type Observer struct {
	// Transitioned is called when a transition was written into a transaction, which may still be rolled back and repeated. It is
	// called by several goroutines at a time, and must return at once.
	Transitioned func(t Transitioned)
}

// Transitioned is a transition of an instance, with the condition that it leaves the instance in.
type Transitioned struct {
	store.SagaIdentity
	store.SagaCondition
	// Age is how long ago the instance was started.
	Age time.Duration
	// Entries say what happened, as in the history of the instance.
	Entries []store.SagaEntry
}

// observe tells the observer of a transition.
func (e *Engine[Tx]) observe(t *transition, entries []store.SagaEntry) {
	if o := e.cfg.Observer; o != nil && o.Transitioned != nil {
		o.Transitioned(Transitioned{SagaIdentity: t.identity, SagaCondition: t.condition(), Age: t.age, Entries: entries})
	}
}
