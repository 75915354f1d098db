package admin

import (
	"context"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// Change is what an action concerns that has no method of Service, such as that of a command.
type Change struct {
	Action Action
	// On is what it is about, Path the page of that, if there is one; Reason is "" if none was given.
	On, Path, Reason string
	// Key is the key, or the ID of a saga, that On names, if it names one. The run of a saga is none.
	Key string
	// Role is the saga role in which a question is answered.
	Role string
}

// Act carries out an action that has no method of its own: do changes the database that it is given. The entry of the audit is written in
// the transaction of the first change; if nothing changes, there is none. A failure before that is recorded too.
func (s *Service) Act(ctx context.Context, p Principal, c Change, do func(held.Database) error) error {
	if err := s.allowChange(ctx, p, c); err != nil {
		return err
	}
	rec := &recorded{entry: newEntry(p, c.Action, c.On, c.Path, c.Reason)}
	rec.entry.Key, rec.entry.Role = clean(c.Key), clean(c.Role)
	return s.act(ctx, rec, func(records store.Records) error { return do(database{s.store, records}) })
}
