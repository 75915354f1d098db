package relay_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/telemetry"
	"github.com/postrider/postrider/telemetry/export"
)

// receiver is a collector: it notes the spans that it is sent, by name.
type receiver struct {
	mu    sync.Mutex
	spans map[string]*tracepb.Span
}

// ServeHTTP implements http.Handler.
func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if strings.HasSuffix(r.URL.Path, "/v1/traces") && err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				if c.spans[span.GetName()] == nil { // that of a message that is delivered again says the same
					c.spans[span.GetName()] = span
				}
			}
		}
	}
}

// wantLink checks that a span is the root of a trace and has one link, to the span with an ID.
func (c *receiver) wantLink(t *testing.T, name, id string) (spanID string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	span := c.spans[name]
	if span == nil {
		t.Fatalf("no span %q in %v", name, c.spans)
	}
	if len(span.GetParentSpanId()) > 0 || len(span.GetLinks()) != 1 || hex.EncodeToString(span.GetLinks()[0].GetSpanId()) != id {
		t.Errorf("%s has the parent %x and the links %v, want one link to %s", name, span.GetParentSpanId(), span.GetLinks(), id)
	}
	return hex.EncodeToString(span.GetSpanId())
}

// TestTraceOverTwoBrokers: a message that was published in SQL, with the context of a trace, is delivered to JetStream, and the message that
// its consumer publishes is delivered to Kafka and consumed from there. Spans of all reach a collector, and link to those in which the
// messages were published.
func TestTraceOverTwoBrokers(t *testing.T) {
	t.Parallel()
	const published = "00f067aa0ba902b7"
	spans := &receiver{spans: make(map[string]*tracepb.Span)}
	collecting := httptest.NewServer(spans)
	t.Cleanup(collecting.Close)
	url, broker, kafka := clitest.NewMigrated(t), clitest.StartNATS(t), servertest.Get(t, servertest.Kafka)
	prefix := "t" + strings.ToLower(rand.Text()[:10]) + "."
	file := clitest.WriteFile(t, `
store: {url: "`+url+`"}
relays:
  - {name: to-nats, topics: [orders], publisher: "`+broker+`?stream=S"}
  - {name: to-kafka, topics: [invoices], publisher: "`+kafka+`?create=true&partitions=1&prefix=`+prefix+`"}
telemetry: {otlp: "`+collecting.URL+`"}
`)
	db := clitest.OpenOutbox(t, url)
	_, schema, _ := strings.Cut(url, "schema=")
	_, err := db.DB.ExecContext(t.Context(), `SELECT `+schema+`.postrider_publish('orders', 'order/1', 'order.placed', '{}',
		headers => '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-`+published+`-01"}')`)
	clitest.Must(t, err)
	r := clitest.Start(t, nil, "relay", "--config", file)
	c := newConsumers(t, db.Transactions, collecting.URL)
	c.fromNATS(broker)
	c.fromKafka(kafka, prefix+"invoices")
	awaitDelivered(t, r, url, "to-kafka", 1)
	select {
	case <-c.archived:
	case <-time.After(5 * time.Minute):
		t.Fatal("the invoice was not consumed")
	}
	c.end()
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}

	spans.wantLink(t, "send orders", published)
	process := spans.wantLink(t, "process order.placed", published)
	spans.mu.Lock()
	create := spans.spans["create invoice.made"]
	spans.mu.Unlock()
	if create == nil || hex.EncodeToString(create.GetParentSpanId()) != process {
		t.Fatalf("%v is no child of the handler's span %s", create, process)
	}
	spans.wantLink(t, "send invoices", hex.EncodeToString(create.GetSpanId()))
	spans.wantLink(t, "process invoice.made", hex.EncodeToString(create.GetSpanId()))
}

// consumers are traced consumers of a program.
type consumers struct {
	t    *testing.T
	in   *inbox.Inbox[*sql.Tx]
	box  *outbox.Outbox[*sql.Tx]
	tele *telemetry.Telemetry

	archived chan struct{} // closed when the invoice was consumed
	end      func()        // ends them, and sends their spans
	ctx      context.Context
	running  sync.WaitGroup
}

func newConsumers(t *testing.T, s store.Outbox[*sql.Tx], collector string) *consumers {
	t.Helper()
	providers, err := export.Open(t.Context(), export.Config{OTLP: collector, Logger: slog.New(slog.DiscardHandler)})
	clitest.Must(t, err)
	c := &consumers{t: t, archived: make(chan struct{})}
	c.tele, err = telemetry.New(telemetry.Config{Meter: providers.Meter, Tracer: providers.Tracer})
	clitest.Must(t, err)
	c.box, err = outbox.New(s, outbox.Config{Source: "shop", Observer: c.tele.Outbox("main"), Propagator: c.tele.Propagator()})
	clitest.Must(t, err)
	of, ok := s.(store.Inbox[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no store.Inbox", s)
	}
	c.in, err = inbox.New(of)
	clitest.Must(t, err)
	var stop context.CancelFunc
	c.ctx, stop = context.WithCancel(context.WithoutCancel(t.Context()))
	c.end = sync.OnceFunc(func() {
		stop()
		c.running.Wait()
		clitest.Must(t, providers.Shutdown(context.WithoutCancel(c.ctx)))
	})
	t.Cleanup(c.end)
	return c
}

// run runs a consumer with a handler of a type.
func (c *consumers) run(name, kind string, from postrider.Subscriber, h func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error) {
	c.t.Helper()
	consumer, err := inbox.NewConsumer(c.in, from, inbox.ConsumerConfig{
		Name: name, Observer: c.tele.Consumer("main", name), Logger: slog.New(slog.DiscardHandler),
	})
	clitest.Must(c.t, err)
	clitest.Must(c.t, consumer.HandleFunc(kind, h))
	c.running.Go(func() {
		if err := consumer.Run(c.ctx); err != nil {
			c.t.Error(err)
		}
	})
}

// fromNATS runs the consumer that publishes an invoice for each order.
func (c *consumers) fromNATS(broker string) {
	c.t.Helper()
	conn, err := nats.Connect(broker)
	clitest.Must(c.t, err)
	c.t.Cleanup(conn.Close)
	subscriber, err := natsbroker.NewSubscriber(c.t.Context(), conn, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: "S"}, Durable: "billing", Topics: []string{"orders"},
	})
	clitest.Must(c.t, err)
	c.run("billing", "order.placed", subscriber, func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
		_, err := c.box.Publish(ctx, tx, &postrider.Message{Type: "invoice.made", Topic: "invoices", Key: m.Key})
		return err
	})
}

// fromKafka runs the consumer of invoices.
func (c *consumers) fromKafka(address, topic string) {
	c.t.Helper()
	subscriber, err := kafkabroker.OpenSubscriber(c.t.Context(), address, kafkabroker.SubscriberConfig{Group: topic, Topics: []string{topic}, Create: true, Partitions: 1, Replicas: 1})
	clitest.Must(c.t, err)
	done := sync.OnceFunc(func() { close(c.archived) })
	c.run("archive", "invoice.made", subscriber, func(context.Context, *sql.Tx, *postrider.Message) error {
		done()
		return nil
	})
}
