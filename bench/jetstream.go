package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/bench/internal/report"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

const (
	rawPublish  = "asynchronous publishing, nothing read"
	rawEnvelope = "the same with the envelope's headers"
)

// jetStreamSuite moves a backlog to a stream on disk, with message IDs, so that the stream drops duplicates. JetStream
// does not wait for the disk (sync_interval is 2 minutes by default), and neither row makes it wait.
var jetStreamSuite = suite{
	name: "jetstream", title: "Drain a backlog to NATS JetStream, with message IDs", figure: figureRate, unit: "msg/s",
	also: append([]report.Column{{Figure: figureBroker, Title: "broker µs/msg"}}, usual...),
	setup: func(ctx context.Context, b *bundle) ([]entry, error) {
		logs, err := b.logs(ctx)
		if err != nil {
			return nil, err
		}
		j, err := newJetStream(ctx, b)
		if err != nil {
			return nil, err
		}
		river, err := newRiver(ctx, b)
		if err != nil {
			return nil, err
		}
		queue := watermillQueue(1000, 0)
		marks, err := newWatermill(ctx, b, queue)
		if err != nil {
			return nil, err
		}
		return []entry{
			j.entry(rawPublish, report.Limit, func(ctx context.Context, stream string) error { return j.raw(ctx, stream, false) }),
			j.entry(rawEnvelope, report.Limit, func(ctx context.Context, stream string) error { return j.raw(ctx, stream, true) }),
			j.entry("loop by cursor, publishing by hand", report.Limit, j.byHand),
			j.relayEntry(oursKeyed, logs.keyed),
			j.relayEntry(oursUnkeyed, logs.unkeyed),
			j.relayEntry(oursOneKey, logs.oneKey),
			{name: riverBest.name, role: report.Peer, prepare: func(ctx context.Context) error { return river.fill(ctx, b.n) },
				run: j.inStream(func(ctx context.Context, stream string) error {
					return river.drain(ctx, riverBest, b.n, func(ctx context.Context, job riverJob) error {
						return j.publishOne(ctx, stream, strconv.Itoa(job.number))
					})
				})},
			{name: queue.name, role: report.Peer, prepare: func(ctx context.Context) error { return marks.fill(ctx, b.n) },
				run: j.inStream(func(ctx context.Context, stream string) error {
					return marks.drain(ctx, b.n, func(ctx context.Context, m *message.Message) error {
						return j.publishOne(ctx, stream, m.UUID)
					})
				})},
		}, nil
	},
}

// jetStream is a client of the NATS server.
type jetStream struct {
	b   *bundle
	url string
	js  jetstream.JetStream
}

// pending is how many messages may wait for their acknowledgement: the same as in Postrider's publisher.
const pending = natsbroker.DefaultMaxInFlight

func newJetStream(ctx context.Context, b *bundle) (*jetStream, error) {
	url, err := b.startNATS(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	b.after(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(pending))
	return &jetStream{b: b, url: url, js: js}, err
}

// streams numbers the streams of this process.
var streams atomic.Int64

// inStream creates a stream for a run, checks that all messages arrived, and deletes it.
func (j *jetStream) inStream(run func(ctx context.Context, stream string) error) func(context.Context) (report.Figures, error) {
	return func(ctx context.Context) (_ report.Figures, err error) {
		name := fmt.Sprintf("BENCH%d", streams.Add(1))
		s, err := j.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage,
			AllowBatchPublish: true, // as in a stream that Postrider's publisher creates
		})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, j.js.DeleteStream(ctx, name)) }()
		if err := run(ctx, name); err != nil {
			return nil, err
		}
		info, err := s.Info(ctx)
		if err != nil {
			return nil, err
		}
		if info.State.Msgs != uint64(j.b.n) {
			return nil, fmt.Errorf("the stream has %d messages, not %d", info.State.Msgs, j.b.n)
		}
		return nil, nil
	}
}

func (j *jetStream) entry(name string, role report.Role, run func(ctx context.Context, stream string) error) entry {
	return entry{name: name, role: role, run: j.inStream(run)}
}

// relayEntry drains an outbox through Postrider's publisher.
func (j *jetStream) relayEntry(name string, s store.Relay) entry {
	e := j.entry(name, report.Ours, func(ctx context.Context, stream string) (err error) {
		p, err := natsbroker.Open(ctx, j.url, natsbroker.Config{Stream: stream})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		done := &counter{}
		done.expect(j.b.n)
		r, err := newRelay(s, &relay.Config{Publisher: p, PublishInterceptors: []relay.PublishInterceptor{done.accepted}})
		if err != nil {
			return err
		}
		return runUntil(ctx, r, done.all)
	})
	e.limit, e.peer = rawPublish, riverBest.name
	return e
}

// accepted counts the messages that the wrapped publisher has accepted.
func (c *counter) accepted(next relay.PublishFunc) relay.PublishFunc {
	return func(ctx context.Context, msgs []*postrider.Message) []error {
		errs := next(ctx, msgs)
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		c.count(len(msgs) - failed)
		return errs
	}
}

// raw publishes generated messages as fast as the client can.
func (j *jetStream) raw(ctx context.Context, stream string, envelope bool) error {
	for i := range j.b.n {
		m := keys(manyKeys).message(i)
		m.FillDefaults(source, time.Now())
		var extra postrider.CloudEventsBinary
		out := &nats.Msg{Subject: stream + "." + m.Topic, Data: m.Payload, Header: nats.Header{nats.MsgIdHdr: []string{m.ID}}}
		if envelope {
			for name, value := range extra.Headers(m) {
				out.Header[name] = []string{value}
			}
		}
		if _, err := j.js.PublishMsgAsync(out, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	return j.acknowledged(ctx)
}

// byHand reads by cursor and publishes each batch without waiting between its messages; the position moves when all of
// them are acknowledged.
func (j *jetStream) byHand(ctx context.Context, stream string) error {
	return j.b.bareLoop(ctx, keyedPrefix, j.b.n, func(msgs []postrider.Message) error {
		for i := range msgs {
			m := &msgs[i]
			out := &nats.Msg{Subject: stream + "." + m.Topic, Data: m.Payload, Header: nats.Header{nats.MsgIdHdr: []string{m.ID}}}
			if _, err := j.js.PublishMsgAsync(out, jetstream.WithStallWait(time.Minute)); err != nil {
				return err
			}
		}
		return j.acknowledged(ctx)
	})
}

func (j *jetStream) acknowledged(ctx context.Context) error {
	select {
	case <-j.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publishOne publishes a message and waits for its acknowledgement, like the peers' handlers.
func (j *jetStream) publishOne(ctx context.Context, stream, id string) error {
	_, err := j.js.PublishMsg(ctx, &nats.Msg{Subject: stream + "." + messageType, Data: payload, Header: nats.Header{nats.MsgIdHdr: []string{id}}})
	return err
}
