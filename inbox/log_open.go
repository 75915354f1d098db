package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// open loads the position, compares it with the log, and begins a session.
func (r *logRun[Tx]) open() (*logSession, error) {
	now, err := r.src.state(r.ctx, r.part.Name)
	if err != nil {
		return nil, err
	}
	b, err := r.load(now)
	if err != nil {
		return nil, err
	}
	p := store.LogPosition{Partition: r.part.Name, Incarnation: now.Incarnation, Offset: now.First - 1, End: now.End}
	r.unknown, r.openFor, r.began = now.First-1, 0, time.Now()
	changed := b.at == nil
	r.whole = changed
	if b.at != nil {
		p, r.unknown, r.openFor = *b.at, now.End, b.at.Moved+b.at.Open
		if changed, err = r.resume(&p, now); err != nil {
			return nil, err
		}
	}
	p.Whole, p.From = now.Whole, b.from
	r.position, r.moved, r.looked = p, time.Now(), time.Now()
	if changed || b.moved {
		if err := r.store(r.ctx, p, now, r.openFor, b.divided); err != nil {
			return nil, err
		}
	}
	at := postrider.Position{Incarnation: p.Incarnation, Partition: p.Partition, Offset: p.Offset}
	if n := len(p.Anchors); n > 0 && p.Anchors[n-1].Offset == p.Offset {
		at.Mark = p.Anchors[n-1].Mark
	}
	session := newLogSession(r.lease, now, at)
	r.mu.Lock()
	r.session = session
	r.mu.Unlock()
	return session, nil
}

// resume adapts a stored position to the log, and reports whether it changed.
func (r *logRun[Tx]) resume(p *store.LogPosition, now postrider.LogPartition) (changed bool, err error) {
	before := *p
	replaced, err := locate(r.ctx, r.src.log, p, now)
	if err != nil {
		return false, err
	}
	if r.hasNoticed() && !replaced { // the position is older than what was lost
		replaced = true
		p.Replaced++
	}
	known := p.Offset
	switch {
	case replaced:
		r.warnReplaced(&before, p)
		if known = p.Offset; p.MissingTo > known {
			p.MissingFrom, p.MissingTo = 0, 0 // of the other log
		}
	default: // what is missing may have been counted before the position moved past it
		known = max(known, p.MissingTo)
	}
	changed = replaced || p.Number == 0
	if to := removedUpTo(now); to > known {
		r.miss(p, now, logGap{known + 1, to})
		changed = true
	}
	if now.First-1 > p.Offset {
		p.Offset, changed = now.First-1, true
	}
	return changed, nil
}

// removedUpTo is the highest offset that the log no longer has, as far as it tells.
func removedUpTo(now postrider.LogPartition) int64 {
	if now.Removed > 0 {
		return max(now.First-1, now.Removed)
	}
	return now.First - 1
}

func (r *logRun[Tx]) warnReplaced(before, p *store.LogPosition) {
	r.src.c.updateStats(func(s *Stats) { s.LogsReplaced++ })
	r.src.c.cfg.Logger.Warn("the source's log is another incarnation than before: it was recreated or lost its tail. It is read again "+
		"from where it is still the same; what was processed is recognized by its ID. See whether the broker lost messages that are "+
		"to be published again (replay)", "consumer", r.src.c.cfg.Name, "partition", p.Partition, "incarnation", p.Incarnation,
		"earlier_incarnation", before.Incarnation, "position", before.Offset, "resumed_after", p.Offset)
}

// miss records offsets that the broker removed before they were read. A range whose offsets do not count messages is one.
func (r *logRun[Tx]) miss(p *store.LogPosition, now postrider.LogPartition, g logGap) {
	n := g.to - g.from + 1
	if now.Sparse || now.Shared {
		n = 1
	}
	p.Missing, p.MissingFrom, p.MissingTo = p.Missing+n, g.from, g.to
	r.src.c.updateStats(func(s *Stats) { s.Missing += n })
	r.src.c.cfg.Logger.Error("the broker removed messages before this consumer had read them: its retention is too short, or the "+
		"consumer was away for too long. Publish them again if they matter (replay)", "consumer", r.src.c.cfg.Name,
		"partition", p.Partition, "from_offset", g.from, "to_offset", g.to)
}

// reportEvery is how often the broker is told how far the consumer has come, and reportAgain how often it is told the same: Kafka removes
// offsets that are not committed again for some days.
const reportEvery, reportAgain = 10 * time.Second, time.Hour

// report tells the broker how far the consumer has come, if it has a place for that. Nothing depends on it.
func (r *logRun[Tx]) report(ctx context.Context) {
	reporter, ok := r.src.log.(postrider.LogReporter)
	if !ok || r.position.Offset == r.reported && time.Since(r.reportedAt) < reportAgain {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	p := &r.position
	err := reporter.ReportPosition(bounded, r.src.c.cfg.Name, postrider.Position{Incarnation: p.Incarnation, Partition: p.Partition, Offset: p.Offset})
	if ctx.Err() != nil {
		return // there was no time, which says nothing about the broker
	}
	r.reported, r.reportedAt = p.Offset, time.Now()
	if known := r.src.unreported.Swap(err != nil); err != nil && !known {
		r.src.c.cfg.Logger.Info("the broker does not take the consumer's position, so its tools do not show the lag; postrider inbox status does",
			"consumer", r.src.c.cfg.Name, "partition", p.Partition, "error", err)
	}
}
