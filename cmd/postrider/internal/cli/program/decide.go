package program

import (
	"context"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// decisionWait is how long a command waits for a decision to be applied.
const decisionWait = time.Minute

// Decide records a decision about a held key or a parked message, and waits until it is applied.
func Decide(ctx context.Context, db held.Database, d store.Decision) (count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, decisionWait)
	defer cancel()
	d, err = held.Decide(ctx, db, d)
	return d.Count, err
}
