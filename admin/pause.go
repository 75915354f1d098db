package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
)

// PauseRelay pauses a relay or consumer, for a while or, with 0, until it is resumed. Errors: ErrReason, store.ErrUnknownRelay,
// pause.ErrPaused, pause.ErrInvalid.
func (s *Service) PauseRelay(ctx context.Context, p Principal, relay, reason string, last time.Duration) (out store.Pause, err error) {
	if err := s.allow(ctx, p, "PauseRelay", relay); err != nil {
		return out, err
	}
	if err := required(&reason); err != nil {
		return out, err
	}
	on := relay
	if last > 0 {
		on = fmt.Sprintf("%s for %s", relay, Duration(last))
	}
	rec := &recorded{entry: newEntry(p, "PauseRelay", on, RelayPath(relay), reason)}
	err = s.act(ctx, rec, func(records store.Records) error {
		out, err = pause.New(pausing{s.store, records}).Pause(ctx, pause.Request{Relay: relay, By: p.String(), Reason: reason, For: last})
		return err
	})
	return out, err
}

// ResumeRelay ends the pause of a relay or consumer, and returns it. Errors: pause.ErrNotPaused.
func (s *Service) ResumeRelay(ctx context.Context, p Principal, relay, reason string) (ended store.Pause, err error) {
	if err := s.allow(ctx, p, "ResumeRelay", relay); err != nil {
		return ended, err
	}
	rec := &recorded{entry: newEntry(p, "ResumeRelay", relay, RelayPath(relay), reason)}
	err = s.act(ctx, rec, func(records store.Records) error {
		ended, err = pause.New(pausing{s.store, records}).Resume(ctx, relay)
		return err
	})
	return ended, err
}

// pausing joins changed records with the status of the store.
type pausing struct {
	store.StatusReader
	store.Records
}

// RelayPath is the path of the page of a relay or consumer.
func RelayPath(relay string) string { return "/relays/" + escape(relay) }
