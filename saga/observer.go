package saga

import (
	"cmp"
	"time"

	"github.com/postrider/postrider/observe"
)

// observe tells the observer of a transition.
func (e *Engine[Tx]) observe(t *transition) {
	o, entries := e.cfg.Observer, t.entries
	if o == nil || o.Transitioned == nil {
		return
	}
	told := observe.Transitioned{
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
	e.watched.Call(e.cfg.Logger, func() { o.Transitioned(told) }, "engine", e.cfg.Name)
}
