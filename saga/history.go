package saga

import (
	"context"
	"fmt"
	"iter"

	"github.com/postrider/postrider/store"
)

// historyPage is how many transitions are read at once.
const historyPage = 200

// History yields the transitions of an instance, oldest first. Errors: ErrNotFound; those of the store.
func (e *Engine[Tx]) History(ctx context.Context, id string) iter.Seq2[store.SagaTransition, error] {
	return history(ctx, e.store, id)
}

func history(ctx context.Context, r store.SagaReader, id string) iter.Seq2[store.SagaTransition, error] {
	return func(yield func(store.SagaTransition, error) bool) {
		in, err := show(ctx, r, id)
		if err != nil {
			yield(store.SagaTransition{}, err)
			return
		}
		for last := int64(0); ; {
			page, err := r.SagaHistory(ctx, in.Run, last, historyPage)
			if err != nil {
				yield(store.SagaTransition{}, fmt.Errorf("read the history of instance %s: %w", id, err))
				return
			}
			for _, t := range page {
				last = t.Rev
				if !yield(t, nil) {
					return
				}
			}
			if len(page) < historyPage {
				return
			}
		}
	}
}
