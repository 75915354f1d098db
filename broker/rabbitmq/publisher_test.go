package rabbitmqbroker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// setup opens a publisher on the shared server, and a channel. Exchange and queue of cfg are deleted afterwards.
func setup(t testing.TB, cfg rabbitmqbroker.Config) (*rabbitmqbroker.Publisher, *amqp.Channel) {
	t.Helper()
	ch := dial(t, running(t))
	t.Cleanup(func() {
		if cfg.Exchange != "" && !cfg.ExchangePerTopic {
			deleteExchange(t, ch, cfg.Exchange)
		}
		if cfg.Queue != "" {
			deleteQueue(t, ch, cfg.Queue)
		}
	})
	return open(t, running(t), cfg), ch
}

func TestUnroutable(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange")}
	p, ch := setup(t, cfg)
	queue := unique("queue")
	declare(t, ch, queue, nil)
	if err := ch.QueueBind(queue, "kept", cfg.Exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	msgs := append(messages("kept", 30), message("lost", 1))
	onlyFails(t, outcomes(t, p, msgs), 30, postrider.Retried, `nothing is bound to exchange "`+cfg.Exchange+`" for routing key "lost"`)

	cfg.AllowUnroutable = true
	if errs := open(t, running(t), cfg).Publish(t.Context(), msgs); errs != nil {
		t.Errorf("publish what nobody takes, which is allowed: %v", errs)
	}
}

func TestExchangePerTopic(t *testing.T) {
	t.Parallel()
	prefix, queue := unique("per-topic")+".", unique("queue")
	p, ch := setup(t, rabbitmqbroker.Config{Exchange: prefix, ExchangePerTopic: true, Queue: queue})
	msgs := append(messages("orders", 20), messages("invoices", 20)...)
	for i, err := range outcomes(t, p, msgs) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	t.Cleanup(func() {
		for _, topic := range []string{"orders", "invoices", "late"} {
			deleteExchange(t, ch, prefix+topic)
		}
	})
	d, ok, err := ch.Get(queue, true)
	if err != nil || !ok || d.Exchange != prefix+"orders" || !strings.HasPrefix(d.RoutingKey, "key/") {
		t.Errorf("the first message is in exchange %q under %q (%v), want %sorders and its key", d.Exchange, d.RoutingKey, err, prefix)
	}

	checking := open(t, running(t), rabbitmqbroker.Config{Exchange: prefix, ExchangePerTopic: true, CheckOnly: true})
	for range 2 {
		msgs := append(messages("orders", 20), message("late", 1))
		onlyFails(t, outcomes(t, checking, msgs), 20, postrider.Retried, "rabbitmqadmin declare exchange name="+prefix+"late")
	}
	accepted(t, p, messages("late", 1)) // this publisher declares it
	accepted(t, checking, messages("late", 10))

	long := message("orders", 1)
	long.Key = strings.Repeat("k", 256)
	onlyFails(t, outcomes(t, p, []*postrider.Message{long}), 0, postrider.DeadLettered, "more than 255 bytes")
}

// TestExchangeDeleted deletes the exchange of a running publisher, which declares it again.
func TestExchangeDeleted(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange"), Queue: unique("queue")}
	p, ch := setup(t, cfg)
	for range 3 {
		for i, err := range outcomes(t, p, messages("orders", 100)) {
			if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		deleteExchange(t, ch, cfg.Exchange)
	}
	accepted(t, p, messages("orders", 1))
}

// TestSeveralServers uses several servers, some of which cannot be reached.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange"), Queue: unique("queue")}
	setup(t, cfg)
	host := hostOf(t, running(t))
	url := strings.Replace(running(t), host, "127.0.0.1:1,"+host+",127.0.0.1:2", 1)
	for range 3 {
		accepted(t, open(t, url, cfg), messages("several", 3))
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	ch := dial(t, running(t))
	name := unique("exchange")
	if err := ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteExchange(t, ch, name) })
	for text, cfg := range map[string]rabbitmqbroker.Config{
		"set ExchangeType to what it is": {Exchange: name},
		"rabbitmqadmin declare exchange": {Exchange: unique("absent"), CheckOnly: true},
		"enable the plugin that has it":  {Exchange: unique("odd"), ExchangeType: "x-odd"},
	} {
		_, err := rabbitmqbroker.Open(t.Context(), running(t), cfg)
		wantError(t, err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := rabbitmqbroker.Open(ctx, "amqp://shop:secret@127.0.0.1:1", rabbitmqbroker.Config{Exchange: name})
	wantError(t, err, "check that the server runs")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q has the password", err)
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange"), Queue: unique("queue")}
	p, ch := setup(t, cfg)
	m := message("orders.placed", 1)
	m.CorrelationID, m.Headers = "correlation/1", map[string]string{"traceparent": "00-1-2-01", "CC": "not for routing"}
	accepted(t, p, []*postrider.Message{m})
	d, ok, err := ch.Get(cfg.Queue, true)
	if err != nil || !ok {
		t.Fatalf("no message: %v", err)
	}
	for name, pair := range map[string][2]any{
		"message ID": {d.MessageId, m.ID}, "type": {d.Type, m.Type}, "content type": {d.ContentType, m.ContentType},
		"correlation ID": {d.CorrelationId, m.CorrelationID}, "delivery mode": {d.DeliveryMode, amqp.Persistent},
		"timestamp": {d.Timestamp.Unix(), m.Time.Unix()}, "routing key": {d.RoutingKey, m.Topic},
		"cloudEvents_id": {d.Headers["cloudEvents_id"], m.ID}, "key": {d.Headers["cloudEvents_partitionkey"], m.Key},
		"traceparent": {d.Headers["traceparent"], m.Headers["traceparent"]}, "CC": {d.Headers["CC"], nil},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
	m.Headers = map[string]string{strings.Repeat("h", 300): "v"}
	onlyFails(t, outcomes(t, p, []*postrider.Message{m}), 0, postrider.DeadLettered, "AMQP takes names of 255 bytes")
}

// TestDecode reads messages as written by other CloudEvents senders.
func TestDecode(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 16, 28, 29, 0, time.UTC)
	colon := amqp.Table{
		"cloudEvents:specversion": "1.0", "cloudEvents:id": "1", "cloudEvents:source": "/shop", "cloudEvents:type": "order.placed",
		"cloudEvents:time": at, "cloudEvents:count": int32(7), "cloudEvents:new": true, "x-death": []any{amqp.Table{"count": int64(1)}},
	}
	m, err := rabbitmqbroker.Decode(amqp.Delivery{Headers: colon, ContentType: "text/plain", Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "1" || !m.Time.Equal(at) || m.Headers["count"] != "7" || m.Headers["new"] != "true" || string(m.Payload) != "hello" {
		t.Errorf("decoded %+v", m)
	}
	structured := `{"specversion":"1.0","id":"2","source":"/shop","type":"order.placed","data":{"a":1}}`
	m, err = rabbitmqbroker.Decode(amqp.Delivery{ContentType: "application/cloudevents+json", Body: []byte(structured)})
	if err != nil || m.ID != "2" || string(m.Payload) != `{"a":1}` {
		t.Errorf("decoded %+v, %v", m, err)
	}
	_, err = rabbitmqbroker.Decode(amqp.Delivery{Body: []byte("hello")})
	wantError(t, err, "required attributes are missing")
}
