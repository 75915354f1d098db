package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// A watermark says that everything up to an offset is consumed. That holds only within one log incarnation. A broker that
// is restored from a backup, or elects a leader without the tail, reuses offsets for new messages, often without knowing
// it. So a message at or below the watermark is a duplicate only if that is proved: its digest is among those of
// consumed messages, or the log still has the watermark's message at its offset. Otherwise it is new. No clocks are
// compared, and nothing depends on noticing the restart in time.

// verifyTimeout limits the request to the broker.
const verifyTimeout = 10 * time.Second

// passage is the move of a watermark across a batch.
type passage struct {
	before store.Watermark
	// at is the end of the batch, consumed its digests. moved: the watermark was below at, and is now there.
	at       postrider.Position
	consumed digests
	moved    bool
	keys     []string
	// ends marks duplicates. suspects are at or below the watermark and have marks.
	ends     map[*item]end
	suspects []*item
}

func newPassage(batch []*item) *passage {
	p := &passage{at: batch[0].delivery.Position, ends: make(map[*item]end)}
	for _, it := range batch {
		pos := it.delivery.Position
		if pos.Offset > p.at.Offset {
			p.at = pos
		}
		if !p.consumed.has(pos) {
			p.consumed = p.consumed.with(pos)
		}
		if it.msg.Key != "" {
			p.keys = append(p.keys, it.msg.Key)
		}
	}
	return p
}

// beginWatermark moves the watermark of the source's partition to the last of the messages, checks which of their keys
// are held, and returns the messages that are new.
func (t *transaction[Tx]) beginWatermark(ctx context.Context, batch []*item) ([]*item, error) {
	p := newPassage(batch)
	tx, before, held, err := t.batcher.BeginWatermark(ctx, t.cfg.Name, p.at, p.consumed, p.keys)
	if err != nil {
		return nil, err
	}
	t.tx = tx
	for _, key := range held {
		t.held[key] = true
	}
	p.before, p.moved = before, !before.Known || before.Offset < p.at.Offset
	p.compare(batch)
	if err := t.decide(ctx, p, batch[0].delivery.Session); err != nil {
		return nil, errors.Join(err, t.rollback(tx))
	}
	fresh := make([]*item, 0, len(batch))
	for _, it := range batch {
		if ended, ok := p.ends[it]; ok {
			t.ends[it] = ended
			continue
		}
		fresh = append(fresh, it)
	}
	return fresh, nil
}

// compare finds duplicates and suspects among messages by their positions alone.
func (p *passage) compare(batch []*item) {
	var seen digests
	last := p.before // highest so far in the batch
	for _, it := range batch {
		pos := it.delivery.Position
		switch below := last.Known && pos.Offset <= last.Offset; {
		case seen.has(pos), pos.Mark == "" && below:
			p.ends[it] = duplicate
		case p.before.Known && pos.Offset <= p.before.Offset:
			p.suspects = append(p.suspects, it)
		}
		seen = seen.with(pos)
		last.Known, last.Offset = true, max(last.Offset, pos.Offset)
	}
}

// decide resolves the suspects. It also checks the log when messages come from a new session: the log may have been
// replaced, which must be detected before the watermark moves away from the offset that shows it.
func (t *transaction[Tx]) decide(ctx context.Context, p *passage, session int64) error {
	if err := t.sortOut(ctx, p); err != nil {
		return err
	}
	state := postrider.PositionKept
	if len(p.suspects) > 0 || p.before.Known && !t.checkedIn(session, p.at) {
		var err error
		if state, err = t.verify(ctx, p); err != nil {
			return err
		}
	}
	if p.before.Earlier != "" || state == postrider.PositionReplaced {
		t.replaced = p
	}
	if state == postrider.PositionKept {
		for _, it := range p.suspects {
			p.ends[it] = duplicate
		}
		return nil
	}
	return t.recordSuspects(ctx, p, state)
}

// sortOut removes the suspects that are known to have been consumed.
func (t *transaction[Tx]) sortOut(ctx context.Context, p *passage) error {
	if len(p.suspects) == 0 {
		return nil
	}
	from := p.suspects[0].delivery.Position
	for _, it := range p.suspects {
		from.Offset = min(from.Offset, it.delivery.Position.Offset)
	}
	recorded, err := t.store.Consumed(ctx, t.tx, t.cfg.Name, from)
	if err != nil {
		return fmt.Errorf("look for what was consumed: %w", err)
	}
	consumed := digests(recorded)
	if p.moved {
		consumed = consumed.without(p.consumed)
	}
	var left []*item
	for _, it := range p.suspects {
		if consumed.has(it.delivery.Position) {
			p.ends[it] = duplicate
			continue
		}
		left = append(left, it)
	}
	p.suspects = left
	return nil
}

// verify asks the log whether it still has the watermark's message. If that message had no mark, only the offset counts.
func (t *transaction[Tx]) verify(ctx context.Context, p *passage) (postrider.PositionState, error) {
	if p.before.Mark == "" {
		return postrider.PositionKept, nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	at := p.at
	at.Offset, at.Mark = p.before.Offset, p.before.Mark
	state, err := t.subscriber.VerifyPosition(ctx, at)
	if err != nil {
		return 0, fmt.Errorf("compare the watermark of %s with the log: %w", at.Partition, err)
	}
	return state, nil
}

// recordSuspects records new messages below a watermark that the log does not confirm. If the log was replaced, the watermark moves
// back to the current offset; what the log shares with the old one is at lower offsets.
func (t *transaction[Tx]) recordSuspects(ctx context.Context, p *passage, state postrider.PositionState) error {
	if p.moved || len(p.suspects) == 0 {
		return nil
	}
	at := p.at
	if state == postrider.PositionRemoved {
		at.Offset, at.Mark = p.before.Offset, p.before.Mark
	}
	if err := t.store.SetWatermark(ctx, t.tx, t.cfg.Name, at, p.consumed); err != nil {
		return fmt.Errorf("move the watermark: %w", err)
	}
	return nil
}

// logSeen is what a consumer knows about a log.
type logSeen struct {
	session int64 // of the messages consumed last
	// replaced is the watermark that the log does not confirm, so that one replacement counts once.
	replaced store.Watermark
}

// checkedIn says whether the log has been checked in a session.
func (c *Consumer[Tx]) checkedIn(session int64, at postrider.Position) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, known := c.logs[logOf(at)]
	return known && seen.session == session
}

// passed records what a committed transaction has found out about a log.
func (t *transaction[Tx]) passed(batch []*item) {
	if t.cfg.Dedup != ByPosition {
		return
	}
	d, p := batch[0].delivery, t.replaced
	t.mu.Lock()
	seen := t.logs[logOf(d.Position)]
	again := p == nil || p.before.Known && p.before == seen.replaced
	if seen.session = d.Session; !again {
		seen.replaced = p.before
		t.stats.LogsReplaced++
	}
	t.logs[logOf(d.Position)] = seen
	t.mu.Unlock()
	if again {
		return
	}
	t.cfg.Logger.Warn("the source's log is another incarnation than before: it was recreated or lost its tail. Messages that "+
		"are not known to be consumed are taken as new; see whether the broker lost some that are to be published again (replay)",
		"consumer", t.cfg.Name, "partition", p.at.Partition, "incarnation", p.at.Incarnation, "earlier_incarnation", p.before.Earlier,
		"watermark", p.before.Offset, "mark", p.before.Mark, "offset", d.Position.Offset)
}

// logOf identifies a log within a consumer.
func logOf(at postrider.Position) string { return at.Partition + "\x00" + at.Incarnation }
