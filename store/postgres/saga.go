package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// loadSagas implements LoadSagas.
func (s *Store) loadSagas(ctx context.Context, c caller, runs []string) (out []store.SagaInstance, err error) {
	q := query{sql: s.sql.loadSagas, args: []any{list(distinct(slices.Clone(runs)))}, row: instances(&out)}
	return out, translate("load sagas", c.call(ctx, q))
}

// instances appends rows of instances to a slice.
func instances(into *[]store.SagaInstance) func(scan func(dest ...any) error) error {
	var row stored.SagaRow
	return func(scan func(dest ...any) error) error {
		i, err := row.Instance(scan)
		*into = append(*into, i)
		return err
	}
}

// findSagas implements FindSagas.
func (s *Store) findSagas(ctx context.Context, c caller, lookups []store.SagaLookup) (runs []string, err error) {
	err = c.call(ctx, query{sql: s.sql.findSagas, row: text(&runs), args: []any{
		columnOf(lookups, func(l *store.SagaLookup) string { return l.ID }),
		columnOf(lookups, func(l *store.SagaLookup) string { return l.Saga }),
		columnOf(lookups, func(l *store.SagaLookup) string { return l.Key }),
		columnOf(lookups, func(l *store.SagaLookup) string { return l.Alias.Name }),
		columnOf(lookups, func(l *store.SagaLookup) string { return l.Alias.Value }),
	}})
	return runs, translate("find sagas", err)
}

// createTries is how often instances are tried to be created that were there and then gone again.
const createTries = 10

// createSagas implements CreateSagas.
func (s *Store) createSagas(ctx context.Context, c caller, starts []store.SagaStart) ([]*store.SagaInstance, error) {
	sorted := make([]int, len(starts)) // the indexes of those that are neither created nor found
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return strings.Compare(starts[a].ID, starts[b].ID) })
	existing := make([]*store.SagaInstance, len(starts))
	for range createTries {
		if len(sorted) == 0 {
			return existing, nil
		}
		left := make([]store.SagaStart, len(sorted))
		for i, n := range sorted {
			left[i] = starts[n]
		}
		created, found, err := s.tryCreateSagas(ctx, c, left)
		if err != nil {
			return nil, translate("create sagas", err)
		}
		sorted = slices.DeleteFunc(sorted, func(n int) bool {
			run := starts[n].Run
			if created[run] {
				delete(created, run) // the next one of this run exists
				return true
			}
			existing[n] = found[run]
			return found[run] != nil
		})
	}
	return nil, errors.New("create sagas: other instances of the same IDs or keys appear and disappear")
}

// tryCreateSagas returns the runs that it created and, by run, the instances that exist instead. One round trip creates instances without
// aliases and labels.
func (s *Store) tryCreateSagas(ctx context.Context, c caller, starts []store.SagaStart) (created map[string]bool, found map[string]*store.SagaInstance, err error) {
	var first []store.SagaChange
	written := make(map[string]bool) // of several with one run, only the first has a history
	for _, st := range starts {
		if !written[st.Run] {
			written[st.Run] = true
			first = append(first, store.SagaChange{
				Run: st.Run, Rev: 1, Aliases: st.Aliases, Labels: st.Labels, Transitions: []store.SagaTransition{st.Transition},
			})
		}
	}
	history, err := historyRows(first)
	if err != nil {
		return nil, nil, err
	}
	var runs []string
	if err := c.call(ctx, query{sql: s.sql.createSagas, args: append(startArrays(starts), historyArrays(history)...), row: text(&runs)}); err != nil {
		return nil, nil, err
	}
	created, found = set(runs), make(map[string]*store.SagaInstance)
	queries := s.writeNames(slices.DeleteFunc(first, func(f store.SagaChange) bool { return !created[f.Run] }))
	if len(runs) < len(starts) {
		queries = append(queries, s.existingSagas(starts, found))
	}
	if len(queries) > 0 {
		err = c.call(ctx, queries...)
	}
	return created, found, err
}

// existingSagas returns the query for the instances that prevent new ones.
func (s *Store) existingSagas(starts []store.SagaStart, found map[string]*store.SagaInstance) query {
	var row stored.SagaRow
	return query{
		sql: s.sql.existingSagas,
		args: []any{
			columnOf(starts, func(st *store.SagaStart) string { return st.Run }),
			columnOf(starts, func(st *store.SagaStart) string { return st.ID }),
			columnOf(starts, func(st *store.SagaStart) string { return st.Saga }),
			columnOf(starts, func(st *store.SagaStart) string { return st.Key }),
		},
		row: func(scan func(dest ...any) error) error {
			var run string
			i, err := row.Instance(func(dest ...any) error { return scan(append([]any{&run}, dest...)...) })
			found[run] = &i
			return err
		},
	}
}

// startArrays are the parameters of createSagasSQL.
func startArrays(starts []store.SagaStart) []any {
	fixed := func(of func(st *store.SagaStart) string) []string { return columnOf(starts, of) }
	return append(changedArraysOf(starts, func(st *store.SagaStart) changed { return changed{&st.SagaCondition, st.SagaTimes, &st.SagaBody} }),
		fixed(func(st *store.SagaStart) string { return st.Run }),
		fixed(func(st *store.SagaStart) string { return st.ID }),
		fixed(func(st *store.SagaStart) string { return st.Engine }),
		fixed(func(st *store.SagaStart) string { return st.Saga }),
		columnOf(starts, func(st *store.SagaStart) int32 { return int32(st.Version) }),
		fixed(func(st *store.SagaStart) string { return st.Hash }),
		fixed(func(st *store.SagaStart) string { return string(st.Kind) }),
		fixed(func(st *store.SagaStart) string { return st.Key }),
		fixed(func(st *store.SagaStart) string { return st.ParentRun }),
		fixed(func(st *store.SagaStart) string { return st.ParentStep }),
		fixed(func(st *store.SagaStart) string { return st.CorrelationID }),
		fixed(func(st *store.SagaStart) string { return st.Tenant }),
		fixed(func(st *store.SagaStart) string { return st.Token }),
	)
}

// changed is what transitions leave of an instance.
type changed struct {
	*store.SagaCondition
	store.SagaTimes
	*store.SagaBody
}

// changedArraysOf are the arrays of changedArrays.
func changedArraysOf[Row any](rows []Row, of func(r *Row) changed) []any {
	text := func(f func(c changed) string) []string {
		return columnOf(rows, func(r *Row) string { return f(of(r)) })
	}
	flag := func(f func(c changed) bool) []bool {
		return columnOf(rows, func(r *Row) bool { return f(of(r)) })
	}
	count := func(f func(c changed) int) []int32 {
		return columnOf(rows, func(r *Row) int32 { return int32(f(of(r))) })
	}
	micros := func(f func(c changed) int64) []int64 {
		return columnOf(rows, func(r *Row) int64 { return f(of(r)) })
	}
	data := func(f func(c changed) []byte) [][]byte {
		return bytesOf(rows, func(r *Row) []byte { return f(of(r)) })
	}
	return []any{
		text(func(c changed) string { return string(c.Status) }),
		text(func(c changed) string { return string(c.Direction) }),
		flag(func(c changed) bool { return c.Paused }),
		flag(func(c changed) bool { return c.PastPivot }),
		text(func(c changed) string { return c.Cause }),
		text(func(c changed) string { return stored.Text(c.Detail) }),
		text(func(c changed) string { return stored.Text(c.Waiting) }),
		count(func(c changed) int { return c.Obligations }),
		count(func(c changed) int { return c.Released }),
		micros(func(c changed) int64 { return c.Deadline.Microseconds() }),
		micros(func(c changed) int64 { return c.TimerAt.Microseconds() }),
		text(func(c changed) string { return c.TimerID }),
		data(func(c changed) []byte { return c.State }),
		data(func(c changed) []byte { return c.Data }),
	}
}

// saveSagas implements SaveSagas, in one round trip.
func (s *Store) saveSagas(ctx context.Context, c caller, changes []store.SagaChange) error {
	if len(changes) == 0 {
		return nil
	}
	changes = slices.SortedFunc(slices.Values(changes), func(a, b store.SagaChange) int { return strings.Compare(a.Run, b.Run) })
	if slices.ContainsFunc(changes, func(c store.SagaChange) bool { return len(c.Transitions) == 0 }) {
		return fmt.Errorf("save sagas: %w: a change has no transition", store.ErrSagaMoved)
	}
	history, err := historyRows(changes)
	if err != nil {
		return err
	}
	args := append(changedArraysOf(changes, func(c *store.SagaChange) changed { return changed{&c.SagaCondition, c.SagaTimes, &c.SagaBody} }),
		columnOf(changes, func(c *store.SagaChange) string { return c.Run }),
		columnOf(changes, func(c *store.SagaChange) int64 { return c.Rev }),
		columnOf(changes, func(c *store.SagaChange) int32 { return int32(len(c.Transitions)) }))
	saved := query{sql: s.sql.saveSagas, args: args, row: wantCount(len(changes), store.ErrSagaMoved)}
	written := query{sql: s.sql.writeHistory, args: historyArrays(history)}
	return translate("save sagas", c.call(ctx, append([]query{saved, written}, s.writeNames(changes)...)...))
}

// setSagaVersion implements SetSagaVersion.
func (s *Store) setSagaVersion(ctx context.Context, c caller, run string, version int, hash string) error {
	q := query{sql: s.sql.setSagaVersion, args: []any{run, version, hash}, row: wantCount(1, store.ErrNoSaga)}
	return translate("set the version of a saga", c.call(ctx, q))
}

// wantCount fails unless a query counts as many.
func wantCount(want int, otherwise error) func(scan func(dest ...any) error) error {
	return func(scan func(dest ...any) error) error {
		var n int
		if err := scan(&n); err != nil || n == want {
			return err
		}
		return otherwise
	}
}

// historyRow is one row of the history.
type historyRow struct {
	run     string
	rev     int64
	entries string
	*store.SagaTransition
}

// nameRow is an alias or a label of a run.
type nameRow struct{ run, name, value string }

// historyRows are the entries that changes make in the history.
func historyRows(changes []store.SagaChange) (rows []historyRow, err error) {
	for i := range changes {
		c := &changes[i]
		for n := range c.Transitions {
			entries, err := stored.Entries(c.Transitions[n].Entries)
			if err != nil {
				return nil, fmt.Errorf("run %s: %w", c.Run, err)
			}
			rows = append(rows, historyRow{c.Run, c.Rev - int64(len(c.Transitions)-1-n), entries, &c.Transitions[n]})
		}
	}
	return rows, nil
}

// writeNames returns the queries that write the aliases and labels of changes.
func (s *Store) writeNames(changes []store.SagaChange) (queries []query) {
	var aliases, labels []nameRow
	for i := range changes {
		c := &changes[i]
		for _, a := range c.Aliases {
			aliases = append(aliases, nameRow{c.Run, a.Name, a.Value})
		}
		for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
			labels = append(labels, nameRow{c.Run, name, c.Labels[name]})
		}
	}
	if len(aliases) > 0 {
		args := nameArrays(aliases)
		queries = append(queries, query{sql: s.sql.addAliases, args: args},
			query{sql: s.sql.strangeAliases, args: args, row: wantCount(0, store.ErrSagaAliasTaken)})
	}
	if len(labels) > 0 {
		args := nameArrays(labels)
		queries = append(queries, query{sql: s.sql.setLabels, args: args}, query{sql: s.sql.dropLabels, args: args})
	}
	return queries
}

func historyArrays(rows []historyRow) []any {
	return []any{
		columnOf(rows, func(r *historyRow) string { return r.run }),
		columnOf(rows, func(r *historyRow) int64 { return r.rev }),
		columnOf(rows, func(r *historyRow) string { return r.Input }),
		columnOf(rows, func(r *historyRow) string { return r.Step }),
		columnOf(rows, func(r *historyRow) string { return r.MessageID }),
		columnOf(rows, func(r *historyRow) string { return r.Actor }),
		columnOf(rows, func(r *historyRow) string { return stored.Text(r.Note) }),
		columnOf(rows, func(r *historyRow) string { return r.entries }),
		bytesOf(rows, func(r *historyRow) []byte { return r.Patch }),
	}
}

func nameArrays(rows []nameRow) []any {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b nameRow) int {
		return cmp.Or(strings.Compare(a.run, b.run), strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	return []any{
		columnOf(rows, func(r *nameRow) string { return r.run }),
		columnOf(rows, func(r *nameRow) string { return r.name }),
		columnOf(rows, func(r *nameRow) string { return r.value }),
	}
}
