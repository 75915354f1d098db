package saga

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// target returns the definition that an instance migrates to, nil if this process does not have it, but another one does. If nobody has it,
// it returns the one that the instance has, which refuses the verb: waiting would hold up everything that the instance is told. It completes
// the verb by the one that the instance has, which may be that of another build.
func (e *Engine[Tx]) target(ctx context.Context, stored *store.SagaInstance, v *machine.Verb, own machine.Rules) (machine.Rules, error) {
	e.mu.Lock()
	to := e.sagas[stored.Saga][v.To]
	e.mu.Unlock()
	if to != nil && own != nil {
		v.From, _ = own.(*machine.Definition)
		return to, nil
	}
	all, err := e.store.SagaDefinitions(ctx)
	if err != nil {
		return nil, storeError{fmt.Errorf("read definitions: %w", err)}
	}
	if to == nil {
		if slices.ContainsFunc(all, func(d store.SagaDefinition) bool {
			return d.Saga == stored.Saga && d.Version == v.To && len(d.Processes) > 0
		}) {
			return nil, nil
		}
		return own, nil
	}
	if own == nil {
		if own, err = reportedRules(all, stored.Saga, stored.Version, stored.Hash); err != nil {
			return nil, err
		}
	}
	v.From, _ = own.(*machine.Definition)
	return to, nil
}

// reportedRules returns those that a process has reported, nil if none has. Without a hash, they are those that most processes have.
func reportedRules(all []store.SagaDefinition, saga string, version int, hash string) (machine.Rules, error) {
	var found *store.SagaDefinition
	for i := range all {
		d := &all[i]
		if d.Saga != saga || d.Version != version || hash != "" && d.Hash != hash {
			continue
		}
		if found == nil || len(d.Processes) > len(found.Processes) {
			found = d
		}
	}
	if found == nil {
		return nil, nil
	}
	r, err := machine.RulesFromGraph(found.Graph)
	if err != nil {
		return nil, fmt.Errorf("saga %s v%d: %w", saga, version, err)
	}
	return r, nil
}
