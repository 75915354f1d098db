package redisbroker

import (
	"context"
	"crypto/rand"
	_ "embed" // for the script
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

//go:embed lua/log.lua
var logSource string

var logScript = redis.NewScript(logSource)

var _ postrider.Log = (*Subscriber)(nil)

// Partitions implements postrider.Log. It creates missing streams.
func (s *Subscriber) Partitions(ctx context.Context, names ...string) ([]postrider.LogPartition, error) {
	var parts []postrider.LogPartition
	var calls []invocation
	for _, topic := range s.cfg.Topics {
		for i := range s.cfg.Partitions {
			p := postrider.LogPartition{Name: fmt.Sprintf("%s/%d", topic, i), Topic: topic, Number: i, Sparse: true}
			if len(names) == 0 || slices.Contains(names, p.Name) {
				parts = append(parts, p)
				calls = append(calls, s.readCall(&p, "0-0", 0))
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	cmds, err := runScript(ctx, s.client, logScript, calls)
	for i := 0; i < len(parts) && err == nil; i++ {
		var now logState
		if now, err = readState(cmds[i]); err == nil {
			err = now.describe(&parts[i])
		}
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("look at the streams of Redis: %w", outcome(ctx, err)))
	}
	return parts, nil
}

// readCall reads up to count entries of a partition after an ID.
func (s *Subscriber) readCall(p *postrider.LogPartition, after string, count int) invocation {
	return invocation{streamOf(s.cfg.Prefix, p.Topic, p.Number), []any{after, count, rand.Text()[:16]}}
}

// logState is the answer of log.lua.
type logState struct {
	incarnation, server  string
	last, deleted, first string // IDs
	added                int64  // entries ever added, -1 if unknown
	length               int64
	entries              []entry
}

func readState(cmd *redis.Cmd) (now logState, err error) {
	parts, err := cmd.Slice()
	if err != nil {
		return now, err
	}
	if len(parts) != 8 {
		return now, fmt.Errorf("%w: %v", errAnswer, parts)
	}
	length, ok1 := parts[5].(int64)
	list, ok2 := parts[7].([]any)
	if !ok1 || !ok2 {
		return now, fmt.Errorf("%w: %v", errAnswer, parts)
	}
	now = logState{
		incarnation: fmt.Sprint(parts[0]), server: fmt.Sprint(parts[1]), last: fmt.Sprint(parts[2]), deleted: fmt.Sprint(parts[3]),
		added: -1, length: length, first: fmt.Sprint(parts[6]),
	}
	if added, ok := parts[4].(int64); ok {
		now.added = added
	}
	for _, item := range list {
		e, err := readEntry(item)
		if err != nil {
			return now, err
		}
		now.entries = append(now.entries, e)
	}
	return now, nil
}

// trimmed reports whether the stream has lost entries at its beginning. Servers before 7.0 do not tell.
func (l *logState) trimmed() bool { return l.added > l.length }

// describe fills in the state of a partition.
func (l *logState) describe(p *postrider.LogPartition) (err error) {
	p.Incarnation, p.Term, p.First = l.incarnation, l.server, 1
	if p.End, err = offsetOf(l.last); err != nil {
		return err
	}
	switch {
	case l.length == 0:
		p.First = p.End + 1
	case l.trimmed():
		p.First, err = offsetOf(l.first)
	}
	if err == nil && l.deleted != "" {
		p.Removed, err = offsetOf(l.deleted)
	}
	return err
}

// offsetOf returns the offset of an ID.
func offsetOf(id string) (int64, error) {
	incarnation, offset := positionOf("", id)
	if incarnation != "" {
		return 0, fmt.Errorf("the stream has entry %s; a log has IDs of the server's clock, up to %d in a millisecond", id, 1<<sequenceBits)
	}
	return offset, nil
}

// firstRead is how many entries a reader reads first; it adapts to their size.
const firstRead = 16

var (
	errOtherStream = errors.New("the stream is another one, or has lost its tail")
	errTrimmed     = errors.New("entries were removed before they were read")
)

// ReadLog implements postrider.Log. The server knows nothing of a reader: each read checks that the stream is the same.
func (s *Subscriber) ReadLog(_ context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	return &logReader{s: s, part: p, after: max(after, 0), count: firstRead, end: -1, pause: firstPoll}, nil
}

// logReader reads a stream by polling.
type logReader struct {
	s     *Subscriber
	part  postrider.LogPartition
	after int64
	count int
	// end is how many entries the stream had ever had when everything was read; -1 if that is unknown.
	end   int64
	left  []*postrider.Delivery
	pause time.Duration
	ended error
}

// Read implements postrider.LogReader.
func (r *logReader) Read(ctx context.Context, limit, maxBytes int) ([]*postrider.Delivery, error) {
	for {
		if r.ended != nil {
			return nil, unavailable(fmt.Errorf("read partition %s of Redis: %w", r.part.Name, r.ended))
		}
		if len(r.left) > 0 {
			return r.take(limit, maxBytes), nil
		}
		if err := r.fetch(ctx, limit, maxBytes); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.ended = outcome(ctx, err)
			continue
		}
		if len(r.left) > 0 {
			r.pause = firstPoll
			continue
		}
		timer := time.NewTimer(r.pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		r.pause = min(2*r.pause, r.s.cfg.Poll)
	}
}

// fetch reads the next entries.
func (r *logReader) fetch(ctx context.Context, limit, maxBytes int) error {
	wanted := min(r.count, limit)
	cmds, err := runScript(ctx, r.s.client, logScript, []invocation{r.s.readCall(&r.part, idAt(r.after), wanted)})
	if err != nil {
		return err
	}
	now, err := readState(cmds[0])
	if err != nil {
		return err
	}
	if err := r.check(&now); err != nil {
		return err
	}
	size := 0
	for _, e := range now.entries {
		d, err := r.deliver(e)
		if err != nil {
			return err
		}
		r.left = append(r.left, d)
		size += len(valueOf(e.fields, dataField))
	}
	switch n := len(now.entries); {
	case n < wanted:
		r.end = now.added
	default:
		r.end = -1
	}
	if size > maxBytes {
		r.count = max(wanted/2, 1)
	} else {
		r.count = min(2*wanted, limit)
	}
	if n := len(r.left); n > 0 {
		r.after = r.left[n-1].Position.Offset
	}
	return nil
}

// check reports whether the stream is the one that was read before, and still has everything after that.
func (r *logReader) check(now *logState) error {
	state := r.part
	if err := now.describe(&state); err != nil {
		return err
	}
	switch {
	case state.Incarnation != r.part.Incarnation, state.Term != r.part.Term, state.End < r.after:
		return errOtherStream
	case state.First <= r.after+1:
		return nil
	case r.end >= 0 && now.added-now.length <= r.end: // only what was read
		return nil
	}
	return errTrimmed
}

// deliver creates a delivery of an entry.
func (r *logReader) deliver(e entry) (*postrider.Delivery, error) {
	offset, err := offsetOf(e.id)
	if err != nil {
		return nil, err
	}
	m, raw, err := readFields(e.fields)
	return &postrider.Delivery{Message: m, Err: err, Raw: raw, Position: postrider.Position{
		Incarnation: r.part.Incarnation, Partition: r.part.Name, Offset: offset, Mark: markOf(e),
	}}, nil
}

// take returns what was read.
func (r *logReader) take(limit, maxBytes int) []*postrider.Delivery {
	n := 0
	for n < min(limit, len(r.left)) {
		if maxBytes -= len(r.left[n].Message.Payload); maxBytes < 0 && n > 0 {
			break
		}
		n++
	}
	out := r.left[:n:n]
	r.left = r.left[n:]
	return out
}

// Close implements postrider.LogReader.
func (r *logReader) Close(context.Context) error {
	r.ended, r.left = postrider.ErrSubscriptionClosed, nil
	return nil
}
