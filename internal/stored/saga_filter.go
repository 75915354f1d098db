package stored

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/store"
)

// SagaSQL is how a database writes the conditions of a filter of sagas.
type SagaSQL struct {
	// Labels is the table of labels.
	Labels string
	// Arg adds an argument, a string or an int64, to the statement, and returns its placeholder.
	Arg func(value any) string
	// Contains says that a text contains another; case matters.
	Contains func(text, part string) string
	// Age is the time since a column of s, in microseconds.
	Age func(column string) string
}

// Where returns the conditions of a filter for a row s of sagas, joined by AND. They repeat the conditions of partial indexes, which
// databases do not infer from those of the filter.
func (d SagaSQL) Where(f store.SagaFilter, after string) string {
	terms := []string{`s.run > ` + d.Arg(after)}
	for _, equal := range []struct{ column, value string }{
		{"engine", f.Engine}, {"saga", f.Saga}, {"saga_key", f.Key}, {"parent_run", f.ParentRun}, {"correlation_id", f.CorrelationID},
		{"tenant", f.Tenant}, {"cause", f.Cause},
	} {
		if equal.value != "" {
			terms = append(terms, `s.`+equal.column+` = `+d.Arg(equal.value))
		}
	}
	if f.Key != "" {
		terms = append(terms, `s.saga_key <> ''`)
	}
	if f.ParentRun != "" {
		terms = append(terms, `s.parent_run <> ''`)
	}
	if f.Version != 0 {
		terms = append(terms, `s.version = `+d.Arg(int64(f.Version)))
	}
	if len(f.Status) > 0 {
		terms = append(terms, d.statuses(f.Status))
	}
	if f.WaitingFor != "" {
		terms = append(terms, d.Contains(`s.waiting`, d.Arg(f.WaitingFor)))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		terms = append(terms, `EXISTS (SELECT 1 FROM `+d.Labels+` l WHERE l.run = s.run AND l.name = `+d.Arg(name)+` AND l.value = `+d.Arg(f.Labels[name])+`)`)
	}
	if f.Paused {
		terms = append(terms, `s.paused`)
	}
	if f.Overdue {
		terms = append(terms, `s.ended_at IS NULL AND s.deadline_us > 0 AND `+d.Age(`s.started_at`)+` > s.deadline_us`)
	}
	if f.OlderThan > 0 {
		terms = append(terms, d.Age(`s.started_at`)+` >= `+d.Arg(f.OlderThan.Microseconds()))
	}
	return strings.Join(terms, ` AND `)
}

func (d SagaSQL) statuses(statuses []store.SagaStatus) string {
	var values []string
	for _, s := range statuses {
		values = append(values, d.Arg(string(s)))
	}
	text := `s.status IN (` + strings.Join(values, `, `) + `)`
	switch {
	case onlyStuck(statuses):
		text += ` AND s.stuck_at IS NOT NULL`
	case !slices.ContainsFunc(statuses, store.SagaStatus.Ended):
		text += ` AND s.ended_at IS NULL`
	}
	return text
}

func onlyStuck(statuses []store.SagaStatus) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, func(s store.SagaStatus) bool { return s != store.SagaStuck })
}

// OnlyOpen reports whether a filter is best served by an index of the instances that have not ended.
func OnlyOpen(f store.SagaFilter) bool {
	if f.Key != "" || f.ParentRun != "" || len(f.Labels) > 0 {
		return false
	}
	open := len(f.Status) > 0 && !onlyStuck(f.Status) && !slices.ContainsFunc(f.Status, store.SagaStatus.Ended)
	return open || f.Overdue && !onlyStuck(f.Status)
}

// FindSagas returns the runs of lookups, "" for one that has none. The statements find one by its ID, its key or an alias.
func FindSagas(ctx context.Context, q Query, lookups []store.SagaLookup, ofID, ofKey, ofAlias string) ([]string, error) {
	out := make([]string, len(lookups))
	for i, l := range lookups {
		text, args := ofAlias, []any{l.Saga, l.Alias.Name, l.Alias.Value}
		switch {
		case l.ID != "":
			text, args = ofID, []any{l.ID}
		case l.Key != "":
			text, args = ofKey, []any{l.Saga, l.Key}
		}
		if err := OrNone(q.Get(ctx, text, args, &out[i])); err != nil {
			return nil, err
		}
	}
	return out, nil
}
