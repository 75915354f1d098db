package natsbroker

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider"
)

const (
	// pullExpires is how long the server keeps a pull request open.
	pullExpires = 30 * time.Second
	// The server sends a heartbeat every pullHeartbeat while it has nothing for a pull request. After pullSilence
	// without one, the request or the server is considered gone.
	pullHeartbeat, pullSilence = 5 * time.Second, 12 * time.Second
)

// expires returns how long a pull request stays open. With Ordered it is shorter, because the time until a message is
// available counts against AckWait.
func (s *subscription) expires() time.Duration {
	if s.s.cfg.Ordered {
		return min(pullExpires, s.s.cfg.AckWait/4)
	}
	return pullExpires
}

// pull opens a pull request unless one is open.
func (s *subscription) pull(ctx context.Context, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Taken before renew, which waits for an answer: everything sent earlier, for an abandoned request, arrives before
	// that answer.
	began := time.Now()
	if !s.s.conn.IsConnected() {
		s.open, s.stale = 0, true
		return postrider.Unavailable(fmt.Errorf("read from NATS: %w", errNotConnected))
	}
	if !s.stale && s.untilLook() == 0 {
		s.look(ctx)
	}
	if s.stale {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	if s.open > 0 || len(s.waiting) > 0 || s.closed {
		return nil
	}
	s.request++
	s.open, s.asked, s.heard = min(limit, s.s.cfg.MaxAckPending), began, time.Now()
	expires := s.expires()
	request := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, s.open, expires, min(pullHeartbeat, expires/3))
	subject := "$JS.API.CONSUMER.MSG.NEXT." + s.s.cfg.Stream + "." + s.s.cfg.Durable
	if err := s.s.conn.PublishRequest(subject, s.replyTo(), request); err != nil {
		s.open, s.stale = 0, true
		return postrider.Unavailable(fmt.Errorf("read from NATS: %w", err))
	}
	return nil
}

// filtersEvery is how often a subscription looks whether the stream is to be read in partitions now. A consumer's filters pass messages of
// other subjects for good.
const filtersEvery = 10 * time.Second

// untilLook returns how long it is until the next look at the stream. It needs s.mu.
func (s *subscription) untilLook() time.Duration {
	if s.s.cfg.Prefix == "" || s.consumer.sets {
		return math.MaxInt64 // its filters cover all that the stream can have
	}
	return max(s.s.filtersEvery-time.Since(s.looked), 0)
}

// look looks at the stream, and has the consumer checked again if that is to be read otherwise. It needs s.mu, and releases it while it waits.
func (s *subscription) look(ctx context.Context) {
	s.looked = time.Now()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.s.cfg.PublishTimeout)
	defer cancel()
	sets := false
	stream, err := s.s.js.Stream(ctx, s.s.cfg.Stream)
	if err == nil {
		sets, err = s.s.cfg.queueInSets(ctx, stream)
	}
	s.mu.Lock()
	s.stale = s.stale || sets || err != nil
}

// renew checks stream and consumer again. If either was recreated under the same name, all deliveries of the old one are
// lost. It needs s.mu, and releases it while it waits.
func (s *subscription) renew(ctx context.Context) error {
	s.stale = false
	s.renewed++
	s.mu.Unlock()
	found, err := s.s.prepareConsumer(ctx)
	s.mu.Lock()
	switch {
	case ctx.Err() != nil:
		s.stale = true
		return ctx.Err()
	case err != nil:
		s.stale = true
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			return err
		}
		return postrider.Unavailable(err)
	}
	s.looked = time.Now()
	if !found.same(s.consumer) {
		s.s.log.Warn("NATS consumer was recreated; what the stream has is delivered from its beginning", "stream", s.s.cfg.Stream,
			"consumer", s.s.cfg.Durable)
		s.open = 0
		s.waiting = s.ofNew(s.waiting)
		s.lose()
	}
	s.consumer, s.last = found, 0
	return nil
}

// ofNew returns the waiting messages that came from the new consumer, whose sequence starts at one again.
func (s *subscription) ofNew(waiting []arrival) []arrival {
	last := s.last
	for i, a := range waiting {
		if a.meta.Sequence.Consumer <= last {
			return waiting[i:]
		}
		last = a.meta.Sequence.Consumer
	}
	return nil
}

// await waits until there may be messages to take or work to do.
func (s *subscription) await(ctx context.Context) error {
	s.mu.Lock()
	wait := pullSilence
	if s.open > 0 {
		wait = max(pullSilence-time.Since(s.heard), 0)
	}
	wait = min(wait, s.untilLook())
	s.mu.Unlock()
	silence := time.NewTimer(wait)
	defer silence.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.wake:
	case <-s.done:
	case <-silence.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open > 0 && time.Since(s.heard) >= pullSilence {
			s.endRequest(fmt.Errorf("read from NATS: no word about consumer %s of stream %s for %s", s.s.cfg.Durable, s.s.cfg.Stream, pullSilence))
		}
	}
	return nil
}
