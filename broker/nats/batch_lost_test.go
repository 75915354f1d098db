package natsbroker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestBatchMessageLost: the server accepts nothing after a missing message, and the publisher sends it again.
func TestBatchMessageLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2, 30, 60} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			b := setupBatches(t, natsbroker.Config{}, nil)
			b.faults.when(&b.faults.onSend, once(func(reply string) bool { n, op := operation(reply); return n == lost && op != opEnd }))
			msgs := numbered("orders", "a", 60)
			if errs := b.p.Publish(t.Context(), msgs); errs != nil {
				t.Error(errs)
			}
			b.check(t, "orders", msgs)
		})
	}
}

// TestBatchEndLost: without an answer to the end, confirmed messages count, and the rest is unknown.
func TestBatchEndLost(t *testing.T) {
	t.Parallel()
	isEnd := func(reply string) bool { _, op := operation(reply); return op == opEnd }
	for name, lose := range map[string]func(*proxy){
		"message": func(p *proxy) { p.when(&p.onSend, once(isEnd)) },
		"answer":  func(p *proxy) { p.when(&p.onAnswer, once(isEnd)) },
		"connection": func(p *proxy) {
			passes := once(isEnd)
			p.when(&p.onAnswer, func(reply string) bool {
				if passes(reply) {
					return true
				}
				p.Drop()
				return false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupBatches(t, natsbroker.Config{PublishTimeout: 3 * time.Second}, nil)
			lose(b.faults)
			msgs := numbered("orders", "a", 700)
			errs := b.p.Publish(t.Context(), msgs)
			for i, err := range errs {
				// The last messages of a connection are lost with it.
				if i < 500 && err != nil && name != "connection" {
					t.Fatalf("message %d: %v", i, err)
				}
				if i >= 500 {
					wantOutcome(t, err, postrider.BrokerUnavailable, "the stream may have the message")
				}
			}
			if errs == nil {
				t.Error("no error without an answer")
			}
			deliver(t, b.p, msgs[500:])
			b.check(t, "orders", msgs)
		})
	}
}

// TestBatchAnswerLostAlone: if only the answer to one batch is lost, its messages are sent again one by one.
func TestBatchAnswerLostAlone(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{PublishTimeout: 3 * time.Second}, nil)
	b.faults.when(&b.faults.onAnswer, once(func(reply string) bool { _, op := operation(reply); return op == opEnd }))
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			b.p.Publish(ctx, numbered(fmt.Sprintf("other.%d", n), "", 1))
		}
	})
	msgs := numbered("orders", "a", 60)
	if errs := b.p.Publish(t.Context(), msgs); errs != nil {
		t.Error(errs)
	}
	cancel()
	others.Wait()
	b.check(t, "orders", msgs)
}

// TestBatchSecondCopies: duplicates are dropped at any place in a batch.
func TestBatchSecondCopies(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, nil)
	msgs := numbered("orders", "a", 40)
	for _, call := range [][]*postrider.Message{
		msgs[:10],
		msgs[:10],                           // all are duplicates
		msgs[5:20],                          // the first ones
		append(msgs[20:25:25], msgs[:5]...), // the last ones
		append(append(msgs[10:20:20], msgs[25:30]...), msgs[3], msgs[30], msgs[4], msgs[31]), // in between
		append(msgs[31:40:40], msgs[31:40]...),                                               // within the call
		{msgs[39], msgs[39]},
		{msgs[39]},
	} {
		if errs := b.p.Publish(t.Context(), call); errs != nil {
			t.Errorf("errors = %v", errs)
		}
	}
	b.check(t, "orders", msgs)
}
