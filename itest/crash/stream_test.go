package crash

import (
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// check reads the stream from its beginning until every fact has its message and the stream is at its end, or nothing has
// arrived for a while.
func (w *world) check(committed []Fact) Outcome {
	w.t.Helper()
	c := NewChecker(committed)
	for m := range w.read(func() bool { return c.Missing() == 0 }) {
		var f Fact
		if err := json.Unmarshal(m.Data(), &f); err != nil {
			c.ReceiveUnreadable(string(m.Data()))
			continue
		}
		c.Receive(f)
	}
	return c.Outcome()
}

// read yields the messages of the stream from its beginning. It stops at the end of the stream once enough returns true,
// or when nothing has arrived for a while.
func (w *world) read(enough func() bool) iter.Seq2[jetstream.Msg, *jetstream.MsgMetadata] {
	return func(yield func(jetstream.Msg, *jetstream.MsgMetadata) bool) {
		w.t.Helper()
		consumer, err := w.stream.OrderedConsumer(w.t.Context(), jetstream.OrderedConsumerConfig{})
		if err != nil {
			w.t.Fatal(err)
		}
		messages, err := consumer.Messages()
		if err != nil {
			w.t.Fatal(err)
		}
		defer messages.Stop()
		var last uint64
		for came := time.Now(); time.Since(came) < patience; {
			m, err := messages.Next(jetstream.NextMaxWait(200 * time.Millisecond))
			if errors.Is(err, nats.ErrTimeout) {
				if enough() && last >= w.stored() {
					return
				}
				continue
			}
			if err != nil {
				w.t.Fatalf("read the stream: %v", err)
			}
			meta, err := m.Metadata()
			if err != nil {
				w.t.Fatal(err)
			}
			came, last = time.Now(), meta.Sequence.Stream
			if !yield(m, meta) {
				return
			}
		}
	}
}
