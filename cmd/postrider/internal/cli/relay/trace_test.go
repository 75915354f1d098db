package relay_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inbox"
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
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				if c.spans[span.Name] == nil { // that of a message that is delivered again says the same
					c.spans[span.Name] = span
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
	if len(span.ParentSpanId) > 0 || len(span.Links) != 1 || hex.EncodeToString(span.Links[0].SpanId) != id {
		t.Errorf("%s has the parent %x and the links %v, want one link to %s", name, span.ParentSpanId, span.Links, id)
	}
	return hex.EncodeToString(span.SpanId)
}

// TestTraceOverTwoHops: a message that was published in SQL, with the context of a trace, is delivered by the program, and the message
// that its consumer publishes is, too. Spans of all three reach a collector, and link to those in which the messages were published.
func TestTraceOverTwoHops(t *testing.T) {
	t.Parallel()
	const published = "00f067aa0ba902b7"
	spans := &receiver{spans: make(map[string]*tracepb.Span)}
	collecting := httptest.NewServer(spans)
	t.Cleanup(collecting.Close)
	url, broker := clitest.NewMigrated(t), clitest.StartNATS(t)
	file := clitest.WriteFile(t, `
store: {url: "`+url+`"}
relays: [{name: to-nats, publisher: "`+broker+`?stream=S"}]
telemetry: {otlp: "`+collecting.URL+`"}
`)
	db := clitest.OpenOutbox(t, url)
	_, schema, _ := strings.Cut(url, "schema=")
	_, err := db.DB.ExecContext(t.Context(), `SELECT `+schema+`.postrider_publish('orders', 'order/1', 'order.placed', '{}',
		headers => '{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-`+published+`-01"}')`)
	clitest.Must(t, err)
	r := clitest.Start(t, nil, "relay", "--config", file)
	flush := consumeTraced(t, db.Transactions, broker, collecting.URL)
	awaitDelivered(t, r, url, "to-nats", 2)
	flush()
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}

	spans.wantLink(t, "send orders", published)
	process := spans.wantLink(t, "process order.placed", published)
	spans.mu.Lock()
	create := spans.spans["create invoice.made"]
	spans.mu.Unlock()
	if create == nil || hex.EncodeToString(create.ParentSpanId) != process {
		t.Fatalf("%v is no child of the handler's span %s", create, process)
	}
	spans.wantLink(t, "send invoices", hex.EncodeToString(create.SpanId))
}

// consumeTraced runs a consumer that publishes an invoice for each order, until the returned function is called, which sends its spans.
func consumeTraced(t *testing.T, s store.Outbox[*sql.Tx], broker, collector string) (flush func()) {
	t.Helper()
	providers, err := export.Open(t.Context(), export.Config{OTLP: collector, Logger: slog.New(slog.DiscardHandler)})
	clitest.Must(t, err)
	tele, err := telemetry.New(telemetry.Config{Meter: providers.Meter, Tracer: providers.Tracer})
	clitest.Must(t, err)
	box, err := outbox.New(s, outbox.Config{Source: "shop", Observer: tele.Outbox("main"), Propagator: tele.Propagator()})
	clitest.Must(t, err)
	of, ok := s.(store.Inbox[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no store.Inbox", s)
	}
	in, err := inbox.New(of)
	clitest.Must(t, err)
	conn, err := nats.Connect(broker)
	clitest.Must(t, err)
	t.Cleanup(conn.Close)
	subscriber, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: "S"}, Durable: "billing", Topics: []string{"orders"},
	})
	clitest.Must(t, err)
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{
		Name: "billing", Observer: tele.Consumer("main", "billing"), Logger: slog.New(slog.DiscardHandler),
	})
	clitest.Must(t, err)
	clitest.Must(t, c.HandleFunc("order.placed", func(ctx context.Context, tx *sql.Tx, m *postrider.Message) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "invoice.made", Topic: "invoices", Key: m.Key})
		return err
	}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	flush = sync.OnceFunc(func() {
		stop()
		clitest.Must(t, <-ended)
		clitest.Must(t, providers.Shutdown(context.WithoutCancel(ctx)))
	})
	t.Cleanup(flush)
	return flush
}
