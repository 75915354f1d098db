package redisbroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

// delivery is a message in progress. It is open until it is settled or lost.
type delivery struct {
	partition *partition
	id        string
	out       *postrider.Delivery
	open      bool // guarded by subscription.mu
	lost      chan struct{}
}

var _ postrider.Settler = (*delivery)(nil)

// end closes the delivery and reports whether it was open. It needs subscription.mu.
func (d *delivery) end() bool {
	if !d.open {
		return false
	}
	d.open = false
	p := d.partition
	if len(p.unsettled) == p.sub.s.cfg.MaxAckPending {
		p.sub.hurry() // another message may be read
	}
	p.unsettled = slices.DeleteFunc(p.unsettled, func(other *delivery) bool { return other == d })
	return true
}

// Ack implements postrider.Settler. If it fails, e.g. because ctx has ended, the message is redelivered, with those after it.
func (d *delivery) Ack(ctx context.Context) error {
	s := d.partition.sub
	s.mu.Lock()
	open := d.end()
	if open {
		s.settling.Add(1)
	}
	s.mu.Unlock()
	if !open {
		return nil
	}
	defer s.settling.Done()
	err := outcome(ctx, s.s.ack(ctx, d.partition.stream, d.id))
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		d.partition.again(d)
	}
	return fmt.Errorf("settle with Redis: %w; the server may have noted it", err)
}

// ack removes an entry from the pending list.
func (s *Subscriber) ack(ctx context.Context, stream, id string) error {
	if !s.cfg.DeleteSettled {
		return s.client.XAck(ctx, stream, s.cfg.Group, id).Err()
	}
	_, err := s.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.XAck(ctx, stream, s.cfg.Group, id)
		return pipe.XDel(ctx, stream, id).Err()
	})
	return err
}

// Nack implements postrider.Settler. This process keeps the entry while it waits.
func (d *delivery) Nack(_ context.Context, after time.Duration) error {
	p := d.partition
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	if d.end() {
		p.again(d)
		p.notBefore = time.Now().Add(after)
		p.sub.hurry()
	}
	return nil
}

// Reject implements postrider.Settler. Redis cannot store the reason.
func (d *delivery) Reject(ctx context.Context, _ string) error { return d.Ack(ctx) }

// Extend implements postrider.Settler. It does nothing: a process keeps its messages as long as it runs and reaches the
// server.
func (d *delivery) Extend(ctx context.Context) error { return ctx.Err() }

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.lost }
