package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// CheckDefinitions compares the registered definitions and contracts with those that processes have run on this database. A version
// keeps the structure with which a process first ran it: instances of both could not be told apart, and each process would leave those of the other
// alone. A relay or consumer of the engine does this when it begins, and its Run ends with the error; a process that
// only starts instances can call it. Errors: ErrRedefined with every difference, unless Config.AllowRedefine; those of the store.
func (e *Engine[Tx]) CheckDefinitions(ctx context.Context) error {
	if e.cfg.AllowRedefine {
		return nil
	}
	known, err := e.store.SagaDefinitions(ctx)
	if err != nil {
		return fmt.Errorf("saga: read the definitions of engine %s: %w", e.cfg.Name, err)
	}
	first := make(map[versionOf]store.SagaDefinition) // AllowRedefine can have added others
	newest := make(map[string]int)
	for _, d := range known {
		id := versionOf{d.Saga, d.Version}
		if f, found := first[id]; !found || d.FirstSeen.Before(f.FirstSeen) {
			first[id] = d
		}
		newest[d.Saga] = max(newest[d.Saga], d.Version)
	}
	for _, d := range e.definitions() {
		f, found := first[versionOf{d.Saga, d.Version}]
		if !found || f.Hash == d.Hash {
			continue
		}
		changes, unread := changes(f.Graph, d.Graph)
		if unread != nil {
			changes = append(changes, unread.Error())
		}
		err = errors.Join(err, fmt.Errorf("saga %s v%d: %w: %s. Give it version %d, and keep version %d registered until none of its instances "+
			"is running", d.Saga, d.Version, ErrRedefined, strings.Join(changes, "; "), newest[d.Saga]+1, d.Version))
	}
	return err
}

// versionOf is a version of a saga.
type versionOf struct {
	saga    string
	version int
}

// changes says how a graph differs from what it was.
func changes(was, is []byte) ([]string, error) {
	before, err := machine.RulesFromGraph(was)
	if err != nil {
		return nil, err
	}
	after, err := machine.RulesFromGraph(is)
	if err != nil {
		return nil, err
	}
	return machine.Changes(before, after), nil
}

// prepare checks the definitions, and reports them before the first instance is handled, so that the next process is compared with them.
// Two processes that run a version for the first time, at the same moment, are not compared; the next start of one of them is refused.
func (e *Engine[Tx]) prepare(ctx context.Context) error {
	if err := e.CheckDefinitions(ctx); err != nil {
		return err
	}
	if err := e.report(ctx, e.definitions()); err != nil {
		return fmt.Errorf("saga: report the definitions of engine %s: %w", e.cfg.Name, err)
	}
	return nil
}
