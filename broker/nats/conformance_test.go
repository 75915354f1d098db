package natsbroker_test

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/internal/servertest"
)

func TestConformanceEmbedded(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, brokertest.Features{}, func(t *testing.T) brokertest.Harness {
		return harness(t, startEmbedded(t, nil), newStreamName())
	})
}

// TestConformanceOneByOne publishes to a stream that does not allow batches.
func TestConformanceOneByOne(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, brokertest.Features{}, func(t *testing.T) brokertest.Harness {
		s, name := startEmbedded(t, nil), newStreamName()
		createStream(t, s.address(), name, false)
		return harness(t, s, name)
	})
}

// createStream creates a stream with the subjects under its name, or the given ones.
func createStream(t testing.TB, address, name string, batches bool, subjects ...string) jetstream.Stream {
	t.Helper()
	if len(subjects) == 0 {
		subjects = []string{name + ".>"}
	}
	_, js := connect(t, address)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects, AllowBatchPublish: batches})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestConformanceExternal runs on an existing server that the test cannot restart.
func TestConformanceExternal(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servertest.Get(t, servertest.NATS))
	if err != nil {
		t.Fatalf("POSTRIDER_TEST_NATS: %v", err)
	}
	// Streams are deleted after all tests: the server fails to create a stream while it deletes its last one.
	var mu sync.Mutex
	var streams []string
	t.Cleanup(func() {
		for _, name := range streams {
			deleteStream(t, u.Host, name)
		}
	})
	brokertest.Run(t, brokertest.Features{NoRestart: true}, func(inner *testing.T) brokertest.Harness {
		name := newStreamName()
		mu.Lock()
		defer mu.Unlock()
		streams = append(streams, name)
		return harness(inner, runningServer(u.Host), name)
	})
}

// runningServer is the host:port of an existing server.
type runningServer string

func (s runningServer) address() string { return string(s) }
func (runningServer) stop(testing.TB)   {}
func (runningServer) start(testing.TB)  {}

func newStreamName() string { return "TEST_" + nats.NewInbox()[len("_INBOX."):] }

func harness(t *testing.T, s natsServer, name string) brokertest.Harness {
	faults := newProxy(t, s.address())
	p, err := natsbroker.Open(t.Context(), faults.url(), natsbroker.Config{
		Stream: name, PublishTimeout: 15 * time.Second, Options: []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := brokertest.Harness{
		Publisher:    p,
		Close:        p.Close,
		Arrived:      func(t testing.TB, topic string) []*postrider.Message { return arrived(t, s.address(), name, topic) },
		Refuse:       faults.mark(faults.refuse, 1),
		LoseAcks:     faults.mark(faults.loseAck, 1),
		LoseMessages: faults.mark(faults.loseMsg, 2), // in the batch, and again when sent as a single message
		Drop:         faults.Drop,
		Pause:        faults.Pause,
		Resume:       faults.Resume,
	}
	if _, external := s.(runningServer); !external {
		h.Stop, h.Start = s.stop, s.start
	}
	return h
}

func connect(t testing.TB, address string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

func deleteStream(t testing.TB, address, name string) {
	conn, js := connect(t, address)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := js.DeleteStream(ctx, name); err != nil {
		t.Errorf("delete stream %s: %v", name, err)
	}
}

// arrived reads all messages of a topic from the stream, like a consumer. The servers of a cluster may be electing a leader, so
// it tries again after an error.
func arrived(t testing.TB, address, stream, topic string) []*postrider.Message {
	t.Helper()
	conn, js := connect(t, address)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	subject := stream + "." + topic
	if topic != "orders.*" { // the only topic here that is a wildcard
		subject = natsbroker.Subject(stream+".", topic)
	}
	for {
		msgs, err := readAll(ctx, js, stream, subject)
		if err == nil {
			return msgs
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("read stream %s: %v", stream, err)
		}
	}
}

// readAll reads the messages that a stream has for a subject.
func readAll(ctx context.Context, js jetstream.JetStream, stream, subject string) (msgs []*postrider.Message, err error) {
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return nil, err
	}
	info, err := consumer.Info(ctx)
	if err != nil || info.NumPending == 0 {
		return nil, err
	}
	iterator, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer iterator.Stop()
	for {
		got, err := iterator.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		m, err := postrider.CloudEventsBinary{}.Decode(headers(got.Headers()), got.Data())
		if err != nil {
			return nil, fmt.Errorf("message on %s: %w", got.Subject(), err)
		}
		msgs = append(msgs, m)
		meta, err := got.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.NumPending == 0 {
			return msgs, nil
		}
	}
}

func headers(h nats.Header) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, values := range h {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}
