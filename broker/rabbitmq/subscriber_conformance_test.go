package rabbitmqbroker_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

func TestSubscriberConformance(t *testing.T) {
	t.Parallel()
	const (
		competing = "members take what comes first"
		notShared = "it runs on the server that all tests share"
	)
	queue := brokertest.SubscriberFeatures{
		Unordered: competing, NoPositions: "a queue has none", NoNackDelay: "RabbitMQ brings a message again at once",
		UnconfirmedAcks: "RabbitMQ confirms no settlement", NoStop: notShared, NoRecreate: "a queue has no positions",
	}
	ordered := queue
	ordered.Unordered, ordered.OneActive = "", "a single active consumer keeps the order"
	ordered.LostLate = "RabbitMQ knows no lease: it goes by its own end of the connection"
	classic := ordered
	classic.NoDeliveryCount = "only quorum queues count"
	for name, c := range map[string]struct {
		cfg      rabbitmqbroker.SubscriberConfig
		features brokertest.SubscriberFeatures
	}{
		"quorum queue":          {rabbitmqbroker.SubscriberConfig{}, queue},
		"ordered quorum queue":  {rabbitmqbroker.SubscriberConfig{Ordered: true}, ordered},
		"ordered classic queue": {rabbitmqbroker.SubscriberConfig{QueueType: rabbitmqbroker.ClassicQueue, Ordered: true}, classic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.RunSubscriber(t, brokertest.SubscriberHarness{
				Features: c.features,
				New:      func(t *testing.T) brokertest.SubscriberEnv { return subscriberEnv(t, running(t), c.cfg) },
			})
		})
	}
}

// subscriberEnv returns an exchange with a queue for each group. Every member connects through its own proxy.
func subscriberEnv(t *testing.T, address string, cfg rabbitmqbroker.SubscriberConfig) brokertest.SubscriberEnv {
	const topic = "orders.placed"
	cfg.Exchange, cfg.Topics, cfg.AckWait = unique("exchange"), []string{"orders.*"}, -1
	ch := dial(t, address)
	queues := make(map[string]bool) // used only by the test's goroutine
	t.Cleanup(func() {
		deleteExchange(t, ch, cfg.Exchange)
		for name := range queues {
			deleteQueue(t, ch, name)
		}
	})
	p, err := rabbitmqbroker.Open(t.Context(), address, rabbitmqbroker.Config{Exchange: cfg.Exchange})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() }) // it returns nil
	return brokertest.SubscriberEnv{
		Topic: topic, Publisher: p,
		Member: func(t testing.TB, group string) brokertest.Member {
			faults := newProxy(t, hostOf(t, address))
			member := cfg
			member.Queue = cfg.Exchange + "." + group
			s, err := rabbitmqbroker.OpenSubscriber(t.Context(), through(t, address, faults), member)
			if err != nil {
				t.Fatal(err)
			}
			queues[member.Queue] = true
			return brokertest.Member{Subscriber: s, Cut: faults.Sever, Restore: faults.Restore}
		},
		Poison: func(t testing.TB, m *postrider.Message) {
			out := amqp.Publishing{Headers: amqp.Table{}, Body: m.Payload}
			for name, value := range (postrider.CloudEventsBinary{Prefix: "cloudEvents_", UTF8: true}).Headers(m) {
				out.Headers[name] = value
			}
			out.Headers["cloudEvents_time"] = time.UnixMilli(1_800_000_000_000_000).UTC() // milliseconds written as seconds
			if err := ch.PublishWithContext(t.Context(), cfg.Exchange, topic, true, false, out); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func deleteExchange(t testing.TB, ch *amqp.Channel, name string) {
	if err := ch.ExchangeDelete(name, false, false); err != nil {
		t.Errorf("delete exchange %s: %v", name, err)
	}
}
