package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
)

// JetStream's acknowledgement messages.
var (
	ack      = []byte("+ACK")
	nak      = []byte("-NAK")
	term     = []byte("+TERM")
	progress = []byte("+WPI")
)

// delivery is a message in progress. It is open until it is settled or lost.
type delivery struct {
	sub    *subscription
	number uint64 // increases with every delivery
	reply  string // subject for settlements
	timer  *time.Timer
	lost   chan struct{}
}

var _ postrider.Settler = (*delivery)(nil)

// end closes the delivery, settled or lost. It needs sub.mu.
func (d *delivery) end() {
	d.timer.Stop()
	delete(d.sub.unsettled, d)
}

// expire runs shortly before the server redelivers the message.
func (d *delivery) expire() {
	d.sub.mu.Lock()
	defer d.sub.mu.Unlock()
	if _, open := d.sub.unsettled[d]; open {
		d.end()
		close(d.lost)
	}
}

// begin reports whether the delivery is open. If so, it registers a settlement that Close waits for. With forGood, it
// ends the delivery.
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

// settle sends a settlement to the server.
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

// Reject implements postrider.Settler. The reason appears in the server's advisory.
func (d *delivery) Reject(ctx context.Context, reason string) error {
	return d.settle(ctx, append(append(term[:len(term):len(term)], ' '), reason...), true, d.sub.s.cfg.ConfirmAcks)
}

// Extend implements postrider.Settler. With Ordered it waits for the server's confirmation, so that no other process
// gets the message while this one assumes that it has more time.
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
