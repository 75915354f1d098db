package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
)

// What JetStream understands as settlements.
var (
	ack      = []byte("+ACK")
	nak      = []byte("-NAK")
	term     = []byte("+TERM")
	progress = []byte("+WPI")
)

// delivery is a message under way. It is open until it is settled or lost.
type delivery struct {
	sub    *subscription
	number uint64 // rises with every delivery
	reply  string // the subject to settle it by
	timer  *time.Timer
	lost   chan struct{}
}

var _ postrider.Settler = (*delivery)(nil)

// end makes the delivery settled or lost. It needs sub.mu.
func (d *delivery) end() {
	d.timer.Stop()
	delete(d.sub.unsettled, d)
}

// expire runs when the server is about to deliver the message again.
func (d *delivery) expire() {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	if _, open := d.sub.unsettled[d]; open {
		d.end()
		close(d.lost)
	}
}

// begin says whether the delivery is open, and if so announces a settlement that Close waits for. One for good ends it.
func (d *delivery) begin(forGood bool) bool {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	if _, open := d.sub.unsettled[d]; !open {
		return false
	}
	if forGood {
		d.end()
	}
	d.sub.settling.Add(1)
	return true
}

// settle tells the server.
func (d *delivery) settle(ctx context.Context, verb []byte, forGood, confirm bool) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("settle with NATS: %w", err)
	}
	if !d.begin(forGood) {
		return nil
	}
	defer d.sub.settling.Done()
	conn := d.sub.s.conn
	if !confirm {
		if err := conn.Publish(d.reply, verb); err != nil {
			return postrider.Unavailable(fmt.Errorf("settle with NATS: %w", err))
		}
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, d.sub.s.cfg.PublishTimeout)
	defer cancel()
	if _, err := conn.RequestWithContext(limited, d.reply, verb); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("settle with NATS: %w; the server may have noted it", ctx.Err())
		}
		return postrider.Unavailable(fmt.Errorf("settle with NATS: %w; the server may have noted it", err))
	}
	return nil
}

// Ack implements postrider.Settler.
func (d *delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, ack, true, d.sub.s.cfg.ConfirmAcks)
}

// Nack implements postrider.Settler.
func (d *delivery) Nack(ctx context.Context, after time.Duration) error {
	verb := nak
	if after > 0 {
		verb = fmt.Appendf(nil, `%s {"delay":%d}`, nak, after)
	}
	return d.settle(ctx, verb, true, false)
}

// Reject implements postrider.Settler. The reason stands in the server's advisory.
func (d *delivery) Reject(ctx context.Context, reason string) error {
	return d.settle(ctx, append(append(term[:len(term):len(term)], ' '), reason...), true, d.sub.s.cfg.ConfirmAcks)
}

// Extend implements postrider.Settler. Where order counts it waits for the server, so that no other process gets the message
// while this one believes to have more time.
func (d *delivery) Extend(ctx context.Context) error {
	began := time.Now()
	if err := d.settle(ctx, progress, false, d.sub.s.cfg.Ordered); err != nil {
		return err
	}
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	if _, open := d.sub.unsettled[d]; open {
		d.timer.Reset(d.sub.right() - time.Since(began))
	}
	return nil
}

// Lost implements postrider.Settler.
func (d *delivery) Lost() <-chan struct{} { return d.lost }
