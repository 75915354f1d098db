package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Newer returns c for a program that knows one more migration.
func (c Config) Newer(up, down string) (Config, error) {
	files := make(fstest.MapFS)
	names, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return c, err
	}
	for _, f := range names {
		text, err := migrationFiles.ReadFile("migrations/" + f.Name())
		if err != nil {
			return c, err
		}
		files[f.Name()] = &fstest.MapFile{Data: text}
	}
	next := len(names)/2 + 1
	files[fmt.Sprintf("%04d_next.up.sql", next)] = &fstest.MapFile{Data: []byte(up)}
	files[fmt.Sprintf("%04d_next.down.sql", next)] = &fstest.MapFile{Data: []byte(down)}
	c.files = files
	return c, nil
}

// Impatient returns c for a Migrate that waits only that long for a lock.
func (c Config) Impatient(lock, pause time.Duration) Config {
	c.patience = stored.Patience{Lock: lock, Pause: pause, Total: pause + 2*lock}
	return c
}

// LockedBy returns the tables that a step locks first.
func LockedBy(s MigrationStep) []string { return lockedBy([]MigrationStep{s}) }

// ExplainFetch runs a fetch and returns its plan: made for its parameters or, as in production, for any.
func (s *Store) ExplainFetch(ctx context.Context, req store.FetchRequest, generic bool) (string, error) {
	n, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	f, err := newFetch(s, "r", req, n)
	if err != nil {
		return "", err
	}
	mode := "force_custom_plan"
	if generic {
		mode = "force_generic_plan"
	}
	var lines []string
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{planSQL, "set local plan_cache_mode = " + mode, "prepare fetching as " + s.sql.fetch} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		// Parameters are in the text, since EXPLAIN would take them for constants otherwise.
		args := append([]any{pgx.QueryExecModeSimpleProtocol}, f.args()...)
		rows, err := tx.Query(ctx, "explain (analyze, buffers, timing off) execute fetching ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", args...)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "deallocate fetching")
		return err
	})
	return strings.Join(lines, "\n"), err
}

// ExplainLookups returns the plans, for their parameters, of the statements that find a parked message and a dead letter by ID.
func (s *Store) ExplainLookups(ctx context.Context, name, id string) (parked, dead string, err error) {
	explain := func(sql string, args ...any) (string, error) {
		var lines []string
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "explain "+s.names.expand(sql), append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
			if err == nil {
				lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		})
		return strings.Join(lines, "\n"), err
	}
	if parked, err = explain(findParkedSQL, name, id); err != nil {
		return "", "", err
	}
	f := store.DeadFilter{MessageID: id, State: store.DeadAny}
	dead, err = explain(listDeadSQL, queryArgs(store.DeadQuery{DeadFilter: f}, int64(100))...)
	return parked, dead, err
}

// ExplainPages returns the plans, for any parameters, of the statements that read a page of held keys and of parked messages.
func (s *Store) ExplainPages(ctx context.Context, name string) (plans []string, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, page := range []struct{ sql, args string }{
			{fmt.Sprintf(listHeldSQL, store.CountLimit), "'2000-01-01', '', 100"}, {listParkedSQL, "'2000-01-01', 0, 0, 100"},
		} {
			for _, sql := range []string{"set local plan_cache_mode = force_generic_plan", "prepare paging as " + s.names.expand(page.sql)} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			rows, err := tx.Query(ctx, fmt.Sprintf("explain (analyze, timing off) execute paging ('%s', %s)", name, page.args), pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			plans = append(plans, strings.Join(lines, "\n"))
			if _, err := tx.Exec(ctx, "deallocate paging"); err != nil {
				return err
			}
		}
		return nil
	})
	return plans, err
}

// DecisionCommits returns synchronous_commit in a transaction of an operator.
func (s *Store) DecisionCommits(ctx context.Context) (setting string, err error) {
	err = s.change(ctx, "show a setting", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "show synchronous_commit").Scan(&setting)
	})
	return setting, err
}

// FetchWith is Fetch with a call between reading rows and flushing them.
func (s *Store) FetchWith(ctx context.Context, name string, req store.FetchRequest, between func()) ([]store.Batch, error) {
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	f, err := newFetch(s, name, req, n)
	if err != nil {
		return nil, err
	}
	if err := f.read(ctx); err != nil {
		return nil, err
	}
	between()
	if err := f.flush(ctx); err != nil {
		return nil, err
	}
	return f.batches(), nil
}

// ExplainInsert returns the plan, for any parameters, of the statement that inserts messages.
func (s *Store) ExplainInsert(ctx context.Context, msgs []*postrider.Message) (string, error) {
	n, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	sql, args, err := s.insertsFor(n).typed(msgs)
	if err != nil {
		return "", err
	}
	var lines []string
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{"set local plan_cache_mode = force_generic_plan", "prepare inserting as " + sql} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		nulls := "explain (verbose, costs off) execute inserting (null" + strings.Repeat(", null", len(args)-1) + ")"
		rows, err := tx.Query(ctx, nulls)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "deallocate inserting")
		return err
	})
	return strings.Join(lines, "\n"), err
}

// Pool returns the pool of the store.
func (s *Store) Pool() *pgxpool.Pool { return s.pool.(pgxPool).Pool }

// RepartitionIn changes the number of partitions in a transaction that has locked the log.
func (s *Store) RepartitionIn(ctx context.Context, tx pgx.Tx, n int) error {
	return s.repartition(ctx, tx, n)
}

// ExplainUndelivered runs the check that retention makes on a segment and returns its plan.
func (s *Store) ExplainUndelivered(ctx context.Context, segment string) (string, error) {
	var lines []string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "explain (analyze, buffers, timing off) "+
			s.names.expand(fmt.Sprintf(undeliveredInSQL, s.names.table(segment), true)))
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return strings.Join(lines, "\n"), err
}

// DropSegment drops a segment that was empty when it was checked.
func (s *Store) DropSegment(ctx context.Context, name string) error {
	m := maintenance{store: s}
	return m.detach(ctx, segment{name: s.config.Prefix + name})
}

// NextSegment moves publishers to the next segment and returns the table of the previous one, without its prefix.
func (s *Store) NextSegment(ctx context.Context) (string, error) {
	m := maintenance{store: s}
	if err := m.prepare(ctx, store.Retention{}); err != nil {
		return "", err
	}
	list, err := s.listSegments(ctx)
	if err != nil {
		return "", err
	}
	before := list.current()[0].name
	if done, err := s.advance(ctx, s.pool, list.ahead()[0].from); err != nil || !done {
		return "", fmt.Errorf("next segment: %v, %w", done, err)
	}
	return strings.TrimPrefix(before, s.config.Prefix), m.prepare(ctx, store.Retention{})
}

// WithSpan makes segments of n numbers.
func (c Config) WithSpan(n int64) Config {
	c.segmentSpan = n
	return c
}

// explainStep explains the prepared statement of a step.
func explainStep(ctx context.Context, tx pgx.Tx, st step, number int, options string) ([]string, error) {
	values := make([]string, len(st.args))
	for v := range values {
		values[v] = fmt.Sprintf("$%d", v+1)
	}
	args := append([]any{pgx.QueryExecModeSimpleProtocol}, st.args...)
	rows, err := tx.Query(ctx, fmt.Sprintf("explain (%s) execute settling_%d (%s)", options, number, strings.Join(values, ", ")), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// ExplainSettle plans the statements of a settlement as cached plans, calls fill, and returns how they then ran.
func (s *Store) ExplainSettle(ctx context.Context, name string, st store.Settlement, fill func() error) (string, error) {
	n, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	in, err := gather(name, []store.Settlement{st}, n)
	if err != nil {
		return "", err
	}
	steps := s.messageSteps(name, in, step{sql: s.sql.removed})
	steps = append(steps, s.keySteps(name, in, new([]string))...)
	var lines []string
	conn, err := s.Pool().Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	for _, filled := range []bool{false, true} {
		lines = nil
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, settlePlanSQL); err != nil {
				return err
			}
			for i := range steps {
				options := "analyze, timing off"
				if !filled {
					options = "costs off"
					if _, err := tx.Exec(ctx, fmt.Sprintf("prepare settling_%d as %s", i, steps[i].sql)); err != nil {
						return err
					}
				}
				plan, err := explainStep(ctx, tx, steps[i], i, options)
				if err != nil {
					return fmt.Errorf("%s: %w", steps[i].sql, err)
				}
				lines = append(append(lines, steps[i].sql), plan...)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		if !filled {
			if err := fill(); err != nil {
				return "", err
			}
		}
	}
	_, err = conn.Exec(ctx, "deallocate all")
	return strings.Join(lines, "\n"), err
}

// ChecksNow are the checks with limits of nothing: what is normal for a while is found at once.
func (s *Store) ChecksNow() []doctor.Check {
	return s.checks(checkLimits{openFault: time.Hour, slotBytes: 1, usedWarning: 0.5, usedFault: 0.95, deadRows: 100_000})
}

// PresentObjects returns what the catalog has.
func (s *Store) PresentObjects(ctx context.Context) (out []doctor.Object, err error) {
	c := checker{s, defaultLimits}
	err = c.read(ctx, func(tx pgx.Tx) error {
		out, _, err = c.presentObjects(ctx, tx)
		return err
	})
	return out, err
}

// AdoptBy makes steps of adoption read n numbers, each of which is logged.
func (c Config) AdoptBy(n int64) Config {
	c.adoption = adoptionConfig{numbers: n}
	return c
}

// AdoptSteps does the first n steps of adopting a restored outbox, as if the process died then. done: that were all.
func (s *Store) AdoptSteps(ctx context.Context, n int) (done bool, err error) {
	err = s.beginAdoption(ctx)
	for i := 0; i < n && err == nil && !done; i++ {
		_, done, err = s.adoptOnce(ctx)
	}
	return done, err
}

// ExplainLists returns the plans, for their parameters, of the statements that read a page of dead letters, redrives, documents and
// the audit, by what they read.
func (s *Store) ExplainLists(ctx context.Context) (map[string]string, error) {
	type list struct {
		sql  string
		args []any
	}
	dead := func(f store.DeadFilter) list {
		return list{listDeadSQL, queryArgs(store.DeadQuery{DeadFilter: f}, int64(100))}
	}
	lists := map[string]list{
		"open dead letters of a relay":     dead(store.DeadFilter{Relay: "view"}),
		"dead letters in any state":        dead(store.DeadFilter{State: store.DeadAny}),
		"dead letters of a type":           dead(store.DeadFilter{Type: "t", State: store.DeadAny}),
		"open dead letters with one cause": dead(store.DeadFilter{Fingerprint: "f-7"}),
		"dead letters of a redrive":        dead(store.DeadFilter{Redrive: 7, State: store.DeadAny}),
		"redrives":                         {listRedrivesSQL, []any{"", int64(math.MaxInt64), int64(100)}},
		"running redrives":                 {listRedrivesSQL, []any{string(store.RedriveRunning), int64(math.MaxInt64), int64(100)}},
		"replays":                          {inTable(listRecordsSQL, store.WorkRecords), []any{"replay", "", "", int64(100)}},
		"further replays":                  {inTable(listRecordsSQL, store.WorkRecords), []any{"replay", "", "00300", int64(100)}},
		"audit":                            {inTable(listRecordsSQL, store.AuditRecords), []any{"audit", "", "", int64(100)}},
		"further audit":                    {inTable(listRecordsSQL, store.AuditRecords), []any{"audit", "", "00300", int64(100)}},
	}
	plans := make(map[string]string)
	for what, l := range lists {
		rows, err := s.pool.Query(ctx, "explain "+s.names.expand(l.sql), append([]any{pgx.QueryExecModeSimpleProtocol}, l.args...)...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		plans[what] = strings.Join(lines, "\n")
	}
	return plans, nil
}
