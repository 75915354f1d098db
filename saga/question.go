package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Question is the question of an Ask that waits for its answer.
type Question struct {
	// Saga, ID and Run identify the instance that asks. Rev is its revision, for Operation.Rev.
	Saga string `json:"saga"`
	ID   string `json:"id"`
	Run  string `json:"run"`
	Rev  int64  `json:"rev"`
	// Step is the path of the Ask, for Operation.Step.
	Step string `json:"step"`
	// Text is what the Ask asks, which its definition makes of the data.
	Text    string   `json:"question,omitempty"`
	Options []string `json:"options"`
	// Roles name who may answer; none for whoever may operate sagas.
	Roles []string `json:"roles,omitempty"`
	// Since is when it was asked, Deadline when its time is up; zero if it waits forever.
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Paused: the instance is paused, and the Deadline moves by as long as it is.
	Paused bool `json:"paused,omitempty"`
}

// Questions returns the questions that an instance asks and nobody has answered, by Step.
func Questions(in store.SagaInstance) (out []Question, err error) {
	var s machine.State
	if err := json.Unmarshal(in.State, &s); err != nil {
		return nil, fmt.Errorf("read the state of instance %s: %w", in.ID, err)
	}
	for _, path := range s.Asking() {
		st := s.Steps[path]
		q := Question{
			Saga: in.Saga, ID: in.ID, Run: in.Run, Rev: in.Rev, Step: path, Text: st.Question, Options: st.Options, Roles: st.Roles,
			Since: in.StartedAt.Add(st.Since), Paused: s.Paused,
		}
		if st.Due > 0 {
			q.Deadline = in.StartedAt.Add(st.Due)
		}
		out = append(out, q)
	}
	return out, nil
}

// Questions returns the questions that up to limit instances ask and nobody has answered, in the order in which the instances started.
// saga is the name of a saga, "" for all. after is the run after which to continue, "" for the start; next is the one to continue after, ""
// at the end. A page can have fewer questions than limit although it is not the last.
//
// It looks at no other instances than those that wait for a step with the name of an Ask in a definition that an engine has reported; no engine
// has run that could take the answer to another one. One that waits for so many steps that the store
// cuts their list (4,000 bytes) may be missing.
func (o *Operator) Questions(ctx context.Context, saga, after string, limit int) (out []Question, next string, err error) {
	runs, more, err := o.asking(ctx, saga, after, limit)
	if err != nil {
		return nil, "", err
	}
	for _, run := range runs {
		in, err := o.reader.ShowSaga(ctx, run)
		if errors.Is(err, store.ErrNoSaga) { // purged meanwhile
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("read instance %s: %w", run, err)
		}
		if questions, err := Questions(in); err == nil { // what a newer build has written hides no other questions
			out = append(out, questions...)
		}
	}
	if more {
		next = runs[len(runs)-1]
	}
	return out, next, nil
}

// asking returns the runs of the next instances that wait for a step with the name of an Ask, and whether there may be more.
func (o *Operator) asking(ctx context.Context, saga, after string, limit int) (runs []string, more bool, err error) {
	asks, err := o.asks(ctx, saga)
	if err != nil {
		return nil, false, err
	}
	found := make(map[string]bool)
	for of, names := range asks {
		for name := range names {
			f := store.SagaFilter{Saga: of, Status: []store.SagaStatus{Running, Stuck}, WaitingFor: name}
			list, err := o.reader.ListSagas(ctx, f, after, limit)
			if err != nil {
				return nil, false, fmt.Errorf("list instances of saga %s: %w", of, err)
			}
			for _, s := range list {
				found[s.Run] = true
			}
			more = more || len(list) == limit
		}
	}
	if runs = slices.Sorted(maps.Keys(found)); len(runs) > limit {
		runs, more = runs[:limit], true
	}
	return runs, more && len(runs) > 0, nil
}

// asks returns the names of all Asks, by saga: an instance that waits for one has it in the path of the step, with an item of an Each too.
func (o *Operator) asks(ctx context.Context, saga string) (map[string]map[string]bool, error) {
	all, err := o.reader.SagaDefinitions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	out := make(map[string]map[string]bool)
	for _, d := range all {
		if saga != "" && d.Saga != saga {
			continue
		}
		rules, err := machine.RulesFromGraph(d.Graph)
		definition, is := rules.(*machine.Definition)
		if err != nil || !is {
			continue // a contract asks nobody, and what a newer build has reported hides no other questions
		}
		for _, step := range definition.All() {
			if step.Kind != machine.Ask {
				continue
			}
			if out[d.Saga] == nil {
				out[d.Saga] = make(map[string]bool)
			}
			out[d.Saga][step.Name] = true
		}
	}
	return out, nil
}
