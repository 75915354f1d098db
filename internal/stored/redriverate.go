package stored

import (
	"context"

	"github.com/postrider/postrider/store"
)

// maxRedriveRates is how many of RedriveRates a redrive of all relays observes.
const maxRedriveRates = 1_000

// RedriveRates selects the records that say how fast all redrives of a relay or consumer together may be. The ID of a record is its name.
var RedriveRates = store.RecordQuery{Table: store.WorkRecords, Kind: "redrive-rate", Limit: maxRedriveRates}

// EndRedriveRate removes the limit of a relay's redrives, if it has one.
func EndRedriveRate(ctx context.Context, w store.Writer, relay string) error {
	q := RedriveRates
	q.ID = relay
	found, err := w.ListRecords(ctx, q)
	if err != nil || len(found) == 0 {
		return err
	}
	return end(ctx, w, found[0])
}
