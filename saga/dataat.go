package saga

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/postrider/postrider/saga/internal/machine"
)

// DataAt returns the data of an instance as they were after the transition that made a revision, from its history: for example, before
// an operator edited them. Errors: ErrNotFound, also for a revision that the instance has not had; those of the store.
func (o *Operator) DataAt(ctx context.Context, id string, rev int64) (data []byte, err error) {
	if rev < 1 {
		return nil, fmt.Errorf("revision %d of instance %s: %w", rev, id, ErrNotFound)
	}
	last := int64(0)
	for t, err := range history(ctx, o.reader, id) {
		switch {
		case err != nil:
			return nil, err
		case t.Rev > rev:
			return data, nil
		}
		if last = t.Rev; len(t.Patch) == 0 {
			continue
		}
		var changed []machine.Difference
		if err = json.Unmarshal(t.Patch, &changed); err == nil {
			data, err = machine.Changed(data, changed)
		}
		if err != nil {
			return nil, fmt.Errorf("read revision %d of instance %s: %w", t.Rev, id, err)
		}
	}
	if last != rev {
		return nil, fmt.Errorf("revision %d of instance %s: %w", rev, id, ErrNotFound)
	}
	return data, nil
}
