package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

var (
	_ postrider.Log         = (*Subscriber)(nil)
	_ postrider.LogReporter = (*Subscriber)(nil)
)

// NoLagConsumer is the value of SubscriberConfig.LagConsumer that shows no position.
const NoLagConsumer = "-"

const (
	// lagPrefix comes before the name of a consumer in the default of SubscriberConfig.LagConsumer.
	lagPrefix = "postrider-"
	// maxPull is the largest number of messages in a pull request of a log reader.
	maxPull = 1024
	// readerIdle is how long the server keeps the consumer of a reader that was not closed.
	readerIdle = time.Minute
)

// checkLog returns an error if a stream cannot be read from a position: with these retention policies the server removes what other
// consumers have acknowledged.
func checkLog(c jetstream.StreamConfig) error {
	if c.Retention == jetstream.LimitsPolicy {
		return nil
	}
	return fmt.Errorf("nats: stream %s has retention %s, which removes messages that others have acknowledged; a log needs retention "+
		"by limits: run: nats stream edit %s --retention=limits, or name a durable consumer (Durable)", c.Name, c.Retention, c.Name)
}

// Partitions implements postrider.Log. A stream is one partition, or 16 if its subjects have partitions.
func (s *Subscriber) Partitions(ctx context.Context, names ...string) (parts []postrider.LogPartition, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("nats: look at stream %s: %w", s.cfg.Stream, err))
	}
	info, leader := stream.CachedInfo(), ""
	if info.Cluster != nil {
		leader = info.Cluster.Leader
	}
	whole := postrider.LogPartition{
		Term: leader, Name: s.cfg.Stream, Incarnation: incarnationOf(info), Topic: s.cfg.Stream, First: max(int64(info.State.FirstSeq), 1), End: int64(info.State.LastSeq),
	}
	sets := setNames(s.cfg.Stream)
	divided, err := s.inSets(ctx, info.Config)
	if err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("nats: look for messages with a partition in stream %s: %w", s.cfg.Stream, err))
	}
	if !divided {
		whole.Parts = sets
		return listed([]postrider.LogPartition{whole}, names), nil
	}
	if s.cfg.takesPlain(info.Config) {
		whole.Term += termOfBoth
	}
	for i, name := range sets {
		p := whole
		p.Name, p.Number, p.Shared, p.Whole = name, i, true, whole.Name
		parts = append(parts, p)
	}
	return listed(parts, names), nil
}

// ReadLog implements postrider.Log. It reads by an ephemeral consumer that needs no acknowledgements.
func (s *Subscriber) ReadLog(ctx context.Context, p postrider.LogPartition, after int64) (postrider.LogReader, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	r := &logReader{s: s, part: p, set: s.setOf(p.Name), at: uint64(max(after, 0)), arrived: make(chan *nats.Msg, 2*maxPull), broken: make(chan struct{})}
	r.status = s.conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	err := errNotConnected
	if s.conn.IsConnected() {
		err = r.open(ctx)
	}
	if err != nil {
		s.conn.RemoveStatusListener(r.status)
		return nil, postrider.Unavailable(fmt.Errorf("nats: read stream %s (the user must be allowed to publish to $JS.API.CONSUMER.> and "+
			"subscribe to _INBOX.>): %w", s.cfg.Stream, err))
	}
	return r, nil
}

// logReader reads a stream by a consumer of its own, with one pull request at a time.
type logReader struct {
	s          *Subscriber
	part       postrider.LogPartition
	set        int    // that it reads, or wholeStream
	name       string // of the consumer
	answers    *nats.Subscription
	arrived    chan *nats.Msg
	status     chan nats.Status
	broken     chan struct{} // closed when the connection broke
	asked      int           // how many more messages the pull request may deliver
	last       uint64        // consumer sequence
	at, passed uint64        // stream sequences: of what was read last, and up to which the server has looked
	gap        bool          // there may be messages that the reader does not get
	narrow     bool          // it reads one set and no messages without a partition
	looked     time.Time     // when it looked at the stream's subjects last
	ended      error
}

func (r *logReader) open(ctx context.Context) error {
	filters, err := r.filters(ctx)
	if err != nil {
		return err
	}
	cfg := consumerAfter(int64(r.at), filters)
	cfg.Description, cfg.InactiveThreshold = "Read by Postrider from a position", readerIdle
	if r.answers, err = r.s.conn.ChanSubscribe(r.s.conn.NewInbox(), r.arrived); err != nil {
		return err
	}
	consumer, err := r.s.js.CreateConsumer(ctx, r.s.cfg.Stream, cfg)
	if err != nil {
		return errors.Join(err, r.answers.Unsubscribe())
	}
	r.name = consumer.CachedInfo().Name
	go func() { // until Close removes the listener
		if _, open := <-r.status; open {
			close(r.broken)
		}
	}()
	return nil
}

// consumerAfter returns the configuration of a consumer without acknowledgements that starts after a position.
func consumerAfter(after int64, filters []string) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(after, 0)) + 1,
		AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true,
	}
	applyFilters(&cfg, filters)
	return cfg
}

// ReportPosition implements postrider.LogReporter: the messages that LagConsumer has not delivered are the lag.
func (s *Subscriber) ReportPosition(ctx context.Context, consumer string, at postrider.Position) error {
	replace := func(r rune) rune {
		if strings.ContainsRune(notInNames, r) {
			return '_'
		}
		return r
	}
	name := cmp.Or(s.cfg.LagConsumer, lagPrefix+strings.Map(replace, consumer))
	if name == NoLagConsumer {
		return nil
	}
	filters, gone := s.cfg.filters(), []string{name}
	if set := s.setOf(at.Partition); set != wholeStream {
		s.oneLag.Store(false)
		name += "-" + strconv.Itoa(set)
		filters, gone = s.cfg.filtersOfSet(digits[set:set+1]), append(gone, name)
	} else if !s.oneLag.Load() { // they would show a lag for good
		for set := range readSets {
			gone = append(gone, name+"-"+strconv.Itoa(set))
		}
	}
	for _, other := range gone {
		if err := s.js.DeleteConsumer(ctx, s.cfg.Stream, other); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("nats: delete consumer %s of stream %s: %w", other, s.cfg.Stream, err)
		}
	}
	cfg := consumerAfter(at.Offset, filters)
	cfg.Durable, cfg.Description = name, "Lag of a consumer that Postrider runs from a position; nobody reads with it"
	if _, err := s.js.CreateConsumer(ctx, s.cfg.Stream, cfg); err != nil {
		return fmt.Errorf("nats: recreate consumer %s of stream %s: %w", name, s.cfg.Stream, err)
	}
	if s.setOf(at.Partition) == wholeStream {
		s.oneLag.Store(true)
	}
	return nil
}

// Read implements postrider.LogReader.
func (r *logReader) Read(ctx context.Context, limit, maxBytes int) ([]*postrider.Delivery, error) {
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	for r.ended == nil {
		if err := r.pull(limit, maxBytes); err != nil {
			r.ended = err
			break
		}
		select {
		case m := <-r.arrived:
			silence.Reset(pullSilence)
			out := r.all(ctx, r.take(m, limit))
			if len(out) == 0 && r.passed > r.at && r.ended == nil {
				out = r.nothing(ctx)
			}
			if len(out) > 0 {
				return out, nil
			}
		case <-r.broken:
			r.ended = errNotConnected
		case <-silence.C:
			r.ended = fmt.Errorf("no word from the server for %s", pullSilence)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, postrider.Unavailable(fmt.Errorf("nats: read stream %s: %w", r.s.cfg.Stream, r.ended))
}

// pull opens a pull request unless one is open.
func (r *logReader) pull(limit, maxBytes int) error {
	if r.asked > 0 || len(r.arrived) > 0 {
		return nil
	}
	r.asked = min(limit, maxPull)
	bytes := ""
	if r.asked > 1 { // a single message may have any size
		bytes = fmt.Sprintf(`,"max_bytes":%d`, maxBytes)
	}
	request := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d%s}`, r.asked, pullExpires, pullHeartbeat, bytes)
	return r.s.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.s.cfg.Stream+"."+r.name, r.answers.Subject, request)
}

// take returns a message and those that have arrived after it.
func (r *logReader) take(m *nats.Msg, limit int) (out []*postrider.Delivery) {
	for {
		if m.Reply == "" {
			r.answered(m.Header)
		} else if d := r.deliver(m); d != nil {
			if n := len(out); n > 0 && d.Message == nil && out[n-1].Message == nil && out[n-1].Err == nil {
				out = out[:n-1] // of several messages for others, the last one is enough
			}
			out = append(out, d)
		}
		if len(out) == limit || r.ended != nil {
			return out
		}
		select {
		case m = <-r.arrived:
		default:
			return out
		}
	}
}

var errGap = errors.New("a message was lost between server and client")

// deliver returns the delivery of a message, or notes that it is not the next one.
func (r *logReader) deliver(m *nats.Msg) *postrider.Delivery {
	meta, err := m.Metadata()
	if err == nil && meta.Sequence.Consumer != r.last+1 {
		err = errGap
	}
	if err != nil {
		r.ended = err
		return nil
	}
	r.gap = r.gap || r.set == wholeStream && meta.Sequence.Stream != r.at+1
	r.last, r.asked, r.at = r.last+1, max(r.asked-1, 0), meta.Sequence.Stream
	out := &postrider.Delivery{Position: postrider.Position{
		Incarnation: r.part.Incarnation, Partition: r.part.Name, Offset: int64(meta.Sequence.Stream), Mark: markOf(meta.Timestamp, m.Header, m.Data),
	}}
	if r.isOfOtherTopic(m.Subject) {
		return out
	}
	decoded, err := r.s.decode(m)
	if r.isOfOtherSet(m.Subject, decoded) {
		return out
	}
	if out.Message, out.Err = decoded, err; err != nil {
		out.Raw = m.Data
	}
	return out
}

// answered handles the end of a pull request, or a heartbeat.
func (r *logReader) answered(header nats.Header) {
	status, description := header.Get("Status"), header.Get("Description")
	switch {
	case status == "100": // nothing yet
		r.heartbeat(header)
	case status == "404", status == "408", strings.HasPrefix(description, "Batch Completed"):
		r.asked = 0
	case strings.HasPrefix(description, "Message Size Exceeds MaxBytes"):
		r.asked = 0
		if len(r.arrived) == 0 {
			r.tooSmall()
		}
	default:
		r.ended = fmt.Errorf("consumer %s: %s %s", r.name, status, description)
	}
}

// heartbeat notes how far the server has looked for messages of the reader's topics.
func (r *logReader) heartbeat(header nats.Header) {
	delivered, err := strconv.ParseUint(header.Get("Nats-Last-Consumer"), 10, 64)
	if err != nil {
		return // another server may not say it
	}
	if delivered != r.last {
		r.ended = errGap
		return
	}
	if passed, err := strconv.ParseUint(header.Get("Nats-Last-Stream"), 10, 64); err == nil {
		r.passed = passed
	}
}

// nothing returns a delivery without a message, if the stream still has the message up to which the server has looked.
func (r *logReader) nothing(ctx context.Context) []*postrider.Delivery {
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.PublishTimeout)
	defer cancel()
	if r.gap = r.narrow || r.set == wholeStream; r.gap {
		if r.all(ctx, nil); r.ended != nil {
			return nil
		}
	}
	r.at = r.passed
	mark, err := r.s.markAt(ctx, int64(r.at))
	if err != nil {
		return nil // a later heartbeat is as good
	}
	return []*postrider.Delivery{{Position: postrider.Position{
		Incarnation: r.part.Incarnation, Partition: r.part.Name, Offset: int64(r.at), Mark: mark,
	}}}
}

// tooSmall requests one message, whatever its size.
func (r *logReader) tooSmall() {
	if err := r.pull(1, 0); err != nil {
		r.ended = err
	}
}

// Close implements postrider.LogReader.
func (r *logReader) Close(ctx context.Context) error {
	if r.ended == nil {
		r.ended = postrider.ErrSubscriptionClosed
	}
	r.s.conn.RemoveStatusListener(r.status)
	err := r.answers.Unsubscribe()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription) || !r.s.conn.IsConnected() {
		return nil // the server removes the consumer
	}
	ctx, cancel := context.WithTimeout(ctx, r.s.cfg.PublishTimeout)
	defer cancel()
	if gone := r.s.js.DeleteConsumer(ctx, r.s.cfg.Stream, r.name); gone != nil && !errors.Is(gone, jetstream.ErrConsumerNotFound) && !errors.Is(gone, jetstream.ErrStreamNotFound) {
		err = errors.Join(err, gone)
	}
	return err
}
