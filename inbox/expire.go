package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/stored"
)

// removeEvery is the interval between removals of expired claims.
const removeEvery = time.Minute

// removeLoop removes the IDs of messages that can no longer be redelivered, in small batches.
func (c *Consumer[Tx]) removeLoop(ctx context.Context) {
	if c.cfg.Dedup != ByID {
		return
	}
	for wait := time.Second; attempt.Sleep(ctx, wait); {
		n, err := c.removeExpired(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("consumer cannot remove old IDs and will try again", "consumer", c.cfg.Name, "error", err)
		}
		wait = removeEvery
		if n == removeBatch {
			wait = 10 * time.Millisecond // let others write in between
		}
	}
}

// removeExpired removes IDs that are no longer needed. The IDs of messages beyond the position in a log are.
func (c *Consumer[Tx]) removeExpired(ctx context.Context) (n int, err error) {
	age := c.cfg.KeepIDs
	if c.log != nil {
		longer, err := c.log.keptLonger(ctx)
		if err != nil {
			return 0, err
		}
		age += longer
	}
	return c.store.RemoveClaims(ctx, c.cfg.Name, age, removeBatch)
}

// noteWindow says, in the log and for operators, what is wrong with the time for which IDs are kept.
func (c *Consumer[Tx]) noteWindow(ctx context.Context) {
	text := c.cfg.tooShort(c.caps)
	if text != "" {
		c.cfg.Logger.Warn("a message may have its effect twice: "+text, "consumer", c.cfg.Name)
	}
	notes, err := stored.Notes(ctx, c.store, stored.NoteWindow)
	before := ""
	for _, n := range notes {
		if n.ID == c.cfg.Name {
			before = string(n.Body)
		}
	}
	if err == nil && text != before {
		err = stored.Note(ctx, c.store, stored.NoteWindow, c.cfg.Name, text)
	}
	if err != nil && c.life.Err() == nil {
		c.cfg.Logger.Debug("the note about the time for which IDs are kept cannot be written", "consumer", c.cfg.Name, "error", err)
	}
}
