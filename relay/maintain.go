package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/retention"
	"github.com/postrider/postrider/store"
)

// kept is the store of a relay as retention needs it.
type kept struct {
	store.Records
	store.Maintainer
}

// maintainLoop maintains the log while this process holds partitions.
func (r *Relay) maintainLoop(ctx context.Context) {
	m, ok := r.store.(store.Maintainer)
	if !ok {
		return
	}
	keeper, err := retention.New(kept{r.store, m}, r.cfg.retention())
	if err != nil {
		return // New has checked the configuration
	}
	deferred := ""
	for wait := time.Second; ; {
		if !attempt.Sleep(ctx, wait) {
			return
		}
		r.mu.Lock()
		holds := len(r.partitions) > 0
		r.mu.Unlock()
		if !holds {
			continue
		}
		wait = time.Minute
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		done, err := keeper.Maintain(bounded)
		cancel()
		r.noteMaintained(ctx, err)
		switch {
		case err != nil && ctx.Err() == nil:
			r.observeFailure(observe.OperationMaintain, err)
			r.cfg.Logger.Warn("maintenance of the log failed and will be tried again", "relay", r.cfg.Name, "error", err)
		case done.Deferred != "" && done.Deferred != deferred:
			r.cfg.Logger.Info("maintenance of the log is put off", "relay", r.cfg.Name, "reason", done.Deferred)
		}
		if err == nil {
			deferred = done.Deferred
			if done.Dropped > 0 {
				r.cfg.Logger.Info("old messages were dropped from the log", "relay", r.cfg.Name, "messages", done.Dropped)
			}
			r.observe(func(o *observe.Relay) {
				if o.Maintained != nil {
					o.Maintained(done)
				}
			})
		}
	}
}

// noteMaintained writes for operators whether the log is maintained. It is only information, so an error is not reported.
func (r *Relay) noteMaintained(ctx context.Context, failed error) {
	kind, text := stored.NoteMaintained, ""
	switch {
	case ctx.Err() != nil:
		return
	case failed != nil:
		kind, text = stored.NoteNotMaintained, failed.Error()
	}
	if err := stored.Note(ctx, r.store, kind, r.cfg.Name, text); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Debug("the note about maintenance cannot be written", "relay", r.cfg.Name, "error", err)
	}
}
