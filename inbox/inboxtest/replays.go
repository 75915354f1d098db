package inboxtest

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

func replayScenarios[Tx any]() []scenario[Tx] {
	return []scenario[Tx]{
		{"ReplayedMessageIsHandledOnce", replayedOnce[Tx]},
		{"ReplayThatNamesTheConsumerIsHandledAgainOnce", replayedAgain[Tx]},
		{"ConsumerThatHandlesReplaysDoesSoOnce", replaysHandled[Tx]},
		{"ReplayIsHandledDespiteItsVersion", replayedVersion[Tx]},
		{"ReplayedVersionWaitsForTheOneBeforeIt", replayedVersionsInOrder[Tx]},
	}
}

// replayed publishes a copy of a message, as a relay does for a replay.
func (w *world[Tx]) replayed(m *postrider.Message, id, consumer string) {
	w.t.Helper()
	again := *m
	again.Headers = maps.Clone(m.Headers)
	if again.Headers == nil {
		again.Headers = make(map[string]string)
	}
	again.Headers[postrider.HeaderReplay] = id
	if consumer != "" {
		again.Headers[postrider.HeaderReplayFor] = consumer
	}
	w.publish(&again)
}

// replayedOnce: a replayed message that was consumed is a duplicate, and one that was not is processed.
func replayedOnce[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{})
	first, lost := w.message("a"), w.message("b")
	w.publish(first)
	w.untilEffects(first.ID)
	for range 2 {
		w.replayed(first, "replay-1", "")
		w.replayed(lost, "replay-1", "")
	}
	w.replayed(first, "replay-2", "another")
	w.until("duplicates", func() bool { return p.Stats().Duplicates >= 4 })
	w.untilQuiet()
	w.publish(lost) // the original, late
	w.until("duplicates", func() bool { return p.Stats().Duplicates >= 5 })
	w.wantSet("effects", w.effects(), []string{first.ID, lost.ID})
}

func replayedAgain[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{})
	first, lost := w.message("a"), w.message("b")
	w.publish(first)
	w.untilEffects(first.ID)
	for range 2 { // redelivered like any other message
		w.replayed(first, "replay-1", consumer)
		w.replayed(lost, "replay-1", consumer)
	}
	w.untilEffects(first.ID, first.ID, lost.ID)
	w.publish(lost) // the original, late
	w.until("duplicates", func() bool { return p.Stats().Duplicates >= 3 })
	w.untilQuiet()
	w.wantSet("effects", w.effects(), []string{first.ID, first.ID, lost.ID})
	w.replayed(first, "replay-2", consumer)
	w.untilEffects(first.ID, first.ID, first.ID, lost.ID)
}

func replaysHandled[Tx any](w *world[Tx]) {
	p := w.start(setting[Tx]{cfg: inbox.ConsumerConfig{Replays: inbox.HandleReplays}})
	m := w.message("a")
	w.publish(m)
	w.untilEffects(m.ID)
	w.replayed(m, "replay-1", "")
	w.replayed(m, "replay-1", "")
	w.replayed(m, "replay-2", "another")
	w.until("duplicates", func() bool { return p.Stats().Duplicates >= 2 })
	w.untilEffects(m.ID, m.ID)
}

func replayedVersion[Tx any](w *world[Tx]) {
	w.start(guarded[Tx](0))
	first, second := w.message("a"), w.message("a")
	first.AggregateVersion, second.AggregateVersion = 1, 2
	w.publish(first, second)
	w.untilEffects(first.ID, second.ID)
	w.replayed(first, "replay-1", consumer)
	w.untilEffects(first.ID, second.ID, first.ID)
	third := w.versioned("a", 3) // the version applied last is still 2
	w.untilEffects(first.ID, second.ID, first.ID, third)
}

// replayedVersionsInOrder: a replayed message whose version was applied long ago is parked behind the one before it, which fails.
func replayedVersionsInOrder[Tx any](w *world[Tx]) {
	s := guarded[Tx](0)
	s.cfg.MaxAttempts = 1_000
	var failing atomic.Bool
	var first *postrider.Message
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if failing.Load() && m.ID == first.ID {
			return errBoom
		}
		return w.effect(ctx, tx, m)
	}
	first = w.message("a")
	second := w.message("a")
	first.AggregateVersion, second.AggregateVersion = 1, 2
	w.start(s)
	w.publish(first, second)
	w.untilEffects(first.ID, second.ID)
	failing.Store(true)
	w.replayed(first, "replay-1", consumer)
	w.until("the first is parked", func() bool { return w.status().Parked.N == 1 })
	w.replayed(second, "replay-1", consumer)
	w.until("the second is parked or has an effect", func() bool { return w.status().Parked.N == 2 || len(w.effects()) > 2 })
	if n := len(w.effects()); n != 2 {
		w.t.Errorf("%d effects: the second overtook the first", n)
	}
	failing.Store(false)
	w.untilEffects(first.ID, second.ID, first.ID, second.ID)
}
