package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

const (
	// maintainEvery is how often an engine reports its definitions, and how often engines and participants remove what is old.
	maintainEvery = time.Minute
	// reportTTL is how long a process that died still counts as one that has its definitions.
	reportTTL = 3 * maintainEvery
	// purgeBatch is how many instances, or records, are removed in a transaction.
	purgeBatch = 1000
	// purgePause lets others write between two of these transactions.
	purgePause = 10 * time.Millisecond
	// takeBackTimeout limits the last report of a process.
	takeBackTimeout = 5 * time.Second
)

// processName is unique to an engine in this process, and tells operators where it runs.
func processName() string {
	host, _ := os.Hostname() // "" if it has none
	id := postrider.NewID()
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), id[len(id)-8:])
}

// maintain reports the definitions of this process and removes old instances, until ctx ends. It runs for each relay and consumer
// of the engine; the last one that ends takes the report back.
func (e *Engine[Tx]) maintain(ctx context.Context) {
	e.mu.Lock()
	e.running++
	e.mu.Unlock()
	every(ctx, func() {
		if err := e.report(ctx, e.definitions()); err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("saga: definitions could not be reported, and are reported again", "engine", e.cfg.Name, "error", err)
		}
		if e.cfg.KeepEnded < 0 {
			return
		}
		err := purge(ctx, func() (int, error) { return e.store.PurgeSagas(ctx, e.cfg.Name, e.cfg.KeepEnded, purgeBatch) })
		if err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("saga: old instances could not be removed, which is tried again", "engine", e.cfg.Name, "error", err)
		}
	})
	e.mu.Lock()
	e.running--
	last := e.running == 0
	e.mu.Unlock()
	if !last {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	if err := e.report(end, nil); err != nil {
		e.cfg.Logger.Warn("saga: the report of definitions could not be taken back; it expires", "engine", e.cfg.Name, "after", reportTTL, "error", err)
	}
}

func (e *Engine[Tx]) report(ctx context.Context, definitions []store.SagaDefinition) error {
	return e.store.ReportSagas(ctx, e.cfg.Name, e.process, definitions, reportTTL)
}

// definitions are those that are registered.
func (e *Engine[Tx]) definitions() (out []store.SagaDefinition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.sagas)) {
		for _, version := range slices.Sorted(maps.Keys(e.sagas[name])) {
			d := e.sagas[name][version]
			graph, err := json.Marshal(d.Graph())
			if err != nil {
				panic(err) // a Graph has nothing that JSON cannot write
			}
			out = append(out, store.SagaDefinition{Saga: name, Version: version, Hash: d.Hash(), Graph: graph})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.contracts)) {
		for _, version := range slices.Sorted(maps.Keys(e.contracts[name])) {
			c := e.contracts[name][version].compiled
			graph, err := json.Marshal(c.Graph())
			if err != nil {
				panic(err) // nor has that of a contract
			}
			out = append(out, store.SagaDefinition{Saga: name, Version: version, Hash: c.Hash(), Graph: graph})
		}
	}
	return out
}

// maintain removes old records, until ctx ends.
func (p *Participant[Tx]) maintain(ctx context.Context) {
	every(ctx, func() {
		err := purge(ctx, func() (int, error) { return p.records.PurgeSagaRecords(ctx, p.cfg.Name, p.cfg.KeepRecords, purgeBatch) })
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("saga: old records could not be removed, which is tried again", "participant", p.cfg.Name, "error", err)
		}
	})
}

// every calls f at once and then regularly, until ctx ends.
func every(ctx context.Context, f func()) {
	for {
		f()
		if !attempt.Sleep(ctx, maintainEvery) {
			return
		}
	}
}

// purge removes batch after batch until one is not full.
func purge(ctx context.Context, batch func() (int, error)) error {
	for {
		n, err := batch()
		if err != nil || n < purgeBatch || !attempt.Sleep(ctx, purgePause) {
			return err
		}
	}
}
