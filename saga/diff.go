package saga

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// DiffClass says what becomes of an instance when a build is deployed.
type DiffClass = machine.Class

// The classes of Diff.
const (
	DiffSame   = machine.ClassSame   // the build has its definition
	DiffPolicy = machine.ClassPolicy // the same, with other timeouts, attempts, roles or topics
	DiffPinned = machine.ClassPinned // the build also has a newer version; the instance continues with its own
	DiffStops  = machine.ClassStops  // the build does not have its definition: it waits
	DiffUnsafe = machine.ClassUnsafe // the same, and the newest version lacks the undo of something that it has done
)

// Difference counts the instances of a version that have not ended and share a class.
type Difference struct {
	Saga    string    `json:"saga"`
	Version int       `json:"version"`
	Class   DiffClass `json:"class"`
	// Why says what is missing; "" if nothing is.
	Why   string `json:"why,omitempty"`
	Count int    `json:"count"`
	// Oldest is the time since the start of the oldest one; Examples are up to five IDs, the oldest first.
	Oldest   time.Duration `json:"-"`
	Examples []string      `json:"examples"`
}

// Breaks says whether the instances would not continue.
func (d Difference) Breaks() bool { return d.Class == DiffStops || d.Class == DiffUnsafe }

// diffPage is how many instances are read at once, diffExamples how many are named.
const (
	diffPage     = 500
	diffExamples = 5
)

// Diff says what becomes of the instances that have not ended when a build is deployed that has these definitions: graphs as
// Definition.Graph and Contract.Graph return them, one JSON value after another. Errors: a graph that cannot be read; those of the store.
func (o *Operator) Diff(ctx context.Context, graphs []byte) ([]Difference, error) {
	build, err := readGraphs(graphs)
	if err != nil {
		return nil, err
	}
	reported, err := o.reader.SagaDefinitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	known := make(map[string]machine.Rules) // by hash, saga and version
	identity := func(saga string, version int, hash string) string { return fmt.Sprint(hash, " ", version, " ", saga) }
	for _, d := range reported {
		read, err := machine.RulesFromGraph(d.Graph)
		if err != nil {
			return nil, fmt.Errorf("saga %s v%d: %w", d.Saga, d.Version, err)
		}
		known[identity(d.Saga, d.Version, d.Hash)] = read
	}
	found := make(map[string]*Difference)
	for after := ""; ; {
		page, err := o.reader.ListSagas(ctx, store.SagaFilter{Status: store.OpenSagaStatuses}, after, diffPage)
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			after = s.Run
			class, why, err := o.classify(ctx, s, known[identity(s.Saga, s.Version, s.Hash)], build[s.Saga])
			if err != nil {
				return nil, err
			}
			group := fmt.Sprint(s.Saga, " ", s.Version, " ", class, " ", why)
			if found[group] == nil {
				found[group] = &Difference{Saga: s.Saga, Version: s.Version, Class: class, Why: why}
			}
			found[group].add(s)
		}
		if len(page) < diffPage {
			return sorted(found), nil
		}
	}
}

func (d *Difference) add(s store.SagaSummary) {
	d.Count++
	d.Oldest = max(d.Oldest, s.Age)
	if len(d.Examples) < diffExamples {
		d.Examples = append(d.Examples, s.ID)
	}
}

// classify classifies an instance by its state. One that ended meanwhile is the same.
func (o *Operator) classify(ctx context.Context, s store.SagaSummary, d machine.Rules, build []machine.Rules) (DiffClass, string, error) {
	if d == nil {
		return DiffStops, "its definition was never reported, so it cannot be compared", nil
	}
	if class, why := machine.Classify(d, &machine.State{}, build); class != DiffStops { // its state makes no difference
		return class, why, nil
	}
	in, err := o.reader.ShowSaga(ctx, s.Run)
	if errors.Is(err, store.ErrNoSaga) {
		return DiffSame, "", nil
	}
	var state machine.State
	if err == nil {
		err = json.Unmarshal(in.State, &state)
	}
	if err != nil {
		return "", "", fmt.Errorf("read the state of instance %s: %w", s.ID, err)
	}
	class, why := machine.Classify(d, &state, build)
	return class, why, nil
}

// readGraphs reads the definitions of a build, by saga.
func readGraphs(graphs []byte) (map[string][]machine.Rules, error) {
	build := make(map[string][]machine.Rules)
	decoder := json.NewDecoder(bytes.NewReader(graphs))
	for {
		var graph json.RawMessage
		err := decoder.Decode(&graph)
		if errors.Is(err, io.EOF) {
			return build, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the graphs of the build: %w", err)
		}
		r, err := machine.RulesFromGraph(graph)
		if err != nil {
			return nil, fmt.Errorf("read the graphs of the build: %w", err)
		}
		name, _ := r.Identity()
		build[name] = append(build[name], r)
	}
}

// sorted returns the differences by saga, version and class.
func sorted(found map[string]*Difference) (out []Difference) {
	for _, d := range found {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Saga, b.Saga), cmp.Compare(a.Version, b.Version), strings.Compare(string(a.Class), string(b.Class)),
			strings.Compare(a.Why, b.Why))
	})
	return out
}
