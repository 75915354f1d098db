package webtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// Many returns a store with more dead letters than a search looks at: the last one has another type, and a key.
func Many(ctx context.Context) (*memory.Store, error) {
	s := memory.New(memory.Config{})
	var dead []store.ParkRequest
	for i := range store.SearchLimit + 1 {
		m := &postrider.Message{ID: fmt.Sprint("m-", i), Type: "order.placed", Topic: "orders", Source: "shop", Time: time.Unix(0, 0), Payload: []byte(`{}`)}
		if i == store.SearchLimit {
			m.Type, m.Key = "order.late", "order 1 & 2"
		}
		dead = append(dead, store.ParkRequest{Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no route to host", Message: m})
	}
	if err := s.Enroll(ctx, "ledger"); err != nil {
		return nil, err
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return s, errors.Join(s.Park(ctx, tx, "ledger", dead), s.Commit(ctx, tx))
}
