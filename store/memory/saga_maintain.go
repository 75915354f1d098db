package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaMaintenance = (*Store)(nil)

// reporter is a process of an engine; report is which definitions it has.
type reporter struct{ engine, process string }

type report struct {
	has         []store.SagaDefinition
	at, expires time.Time
}

// ReportSagas implements store.SagaMaintenance.
func (s *Store) ReportSagas(ctx context.Context, engine, process string, definitions []store.SagaDefinition, ttl time.Duration) error {
	_, err := do(ctx, s, "ReportSagas", func(db *database) (struct{}, error) {
		at := now()
		for _, d := range definitions {
			if i, found := slices.BinarySearchFunc(db.sagas.definitions, d, stored.CompareDefinitions); !found {
				d.Graph, d.FirstSeen, d.Processes = slices.Clone(d.Graph), at, nil
				db.sagas.definitions = slices.Insert(db.sagas.definitions, i, d)
			}
		}
		maps.DeleteFunc(db.sagas.reports, func(_ reporter, r report) bool { return r.expires.Before(at) })
		delete(db.sagas.reports, reporter{engine, process})
		if len(definitions) > 0 {
			db.sagas.reports[reporter{engine, process}] = report{slices.Clone(definitions), at, at.Add(ttl)}
		}
		return struct{}{}, nil
	})
	return err
}

// SagaDefinitions implements store.SagaReader.
func (s *Store) SagaDefinitions(ctx context.Context) ([]store.SagaDefinition, error) {
	return do(ctx, s, "SagaDefinitions", func(db *database) ([]store.SagaDefinition, error) {
		at, out := now(), slices.Clone(db.sagas.definitions)
		for i, d := range out {
			out[i].Graph = slices.Clone(d.Graph)
			for by, r := range db.sagas.reports {
				has := slices.ContainsFunc(r.has, func(other store.SagaDefinition) bool { return stored.CompareDefinitions(d, other) == 0 })
				if has && !r.expires.Before(at) {
					out[i].Processes = append(out[i].Processes, store.SagaProcess{Engine: by.engine, Process: by.process, Seen: at.Sub(r.at)})
				}
			}
			slices.SortFunc(out[i].Processes, func(a, b store.SagaProcess) int {
				return cmp.Or(strings.Compare(a.Engine, b.Engine), strings.Compare(a.Process, b.Process))
			})
		}
		return out, nil
	})
}

// PurgeSagas implements store.SagaMaintenance. It skips instances that a transaction has locked.
func (s *Store) PurgeSagas(ctx context.Context, engine string, endedFor time.Duration, limit int) (int, error) {
	return do(ctx, s, "PurgeSagas", func(db *database) (int, error) {
		children := make(map[string][]*sagaRow)
		var roots []*sagaRow
		for _, row := range db.sagas.rows {
			if row.ParentRun != "" {
				children[row.ParentRun] = append(children[row.ParentRun], row)
			} else if row.Engine == engine && stored.Purgeable(row.Status) && now().Sub(row.EndedAt) >= endedFor {
				roots = append(roots, row)
			}
		}
		slices.SortFunc(roots, func(a, b *sagaRow) int { return cmp.Or(a.EndedAt.Compare(b.EndedAt), strings.Compare(a.Run, b.Run)) })
		n := 0
		for _, root := range roots {
			family := db.sagas.family(root, children)
			if n < limit && db.allPurgeable(family) {
				n++
				for _, row := range family {
					db.sagas.remove(row)
				}
			}
		}
		return n, nil
	})
}

// family returns an instance and those that it started, directly or not.
func (s *sagas) family(row *sagaRow, children map[string][]*sagaRow) []*sagaRow {
	out := []*sagaRow{row}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i].Run]...)
	}
	return out
}

func (db *database) allPurgeable(family []*sagaRow) bool {
	return !slices.ContainsFunc(family, func(row *sagaRow) bool { return !stored.Purgeable(row.Status) || db.locks[runLock(row.Run)] != nil })
}

func (s *sagas) remove(row *sagaRow) {
	delete(s.rows, row.Run)
	delete(s.history, row.Run)
	delete(s.names, idLock(row.ID))
	for _, a := range row.aliases {
		delete(s.names, aliasLock(row.Saga, a))
	}
}

// PurgeSagaRecords implements store.SagaMaintenance.
func (s *Store) PurgeSagaRecords(ctx context.Context, participant string, savedFor time.Duration, limit int) (int, error) {
	return do(ctx, s, "PurgeSagaRecords", func(db *database) (int, error) {
		var old []store.SagaRecord
		for of, records := range db.sagas.records {
			for _, r := range records {
				purgeable := r.Closed || stored.RecordPurgeable(r.State)
				if purgeable && of.participant == participant && now().Sub(r.SavedAt) >= savedFor && db.locks[recordLock(participant, r.SagaStep)] == nil {
					old = append(old, r)
				}
			}
		}
		slices.SortFunc(old, func(a, b store.SagaRecord) int {
			return cmp.Or(a.SavedAt.Compare(b.SavedAt), strings.Compare(a.Run, b.Run), strings.Compare(a.Step, b.Step))
		})
		old = old[:min(limit, len(old))]
		for _, r := range old {
			db.sagas.removeRecord(participant, r.SagaStep)
		}
		return len(old), nil
	})
}

func compareLocks(a, b lock) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.consumer, b.consumer), strings.Compare(a.name, b.name))
}
