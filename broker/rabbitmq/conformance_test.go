package rabbitmqbroker_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, brokertest.Features{NoDedupe: true, NoRestart: true}, func(t *testing.T) brokertest.Harness {
		return harness(t, running(t), rabbitmqbroker.Config{Exchange: unique("exchange")})
	})
}

var names atomic.Int64

// unique returns a name on the server that no other test uses.
func unique(of string) string {
	return fmt.Sprintf("test.%s.%d.%d", of, time.Now().UnixNano(), names.Add(1))
}

// harness publishes through a proxy, to an exchange with a queue that is bound to everything.
func harness(t *testing.T, address string, cfg rabbitmqbroker.Config) brokertest.Harness {
	faults := newProxy(t, hostOf(t, address))
	faults.full, faults.sink = unique("full"), unique("sink")
	kept := unique("kept")
	cfg.PublishTimeout, cfg.MaxMessageBytes = 15*time.Second, 200_000
	p, err := rabbitmqbroker.Open(t.Context(), through(t, address, faults), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ch := dial(t, address)
	quorum := amqp.Table{"x-queue-type": rabbitmqbroker.QuorumQueue}
	declare(t, ch, kept, quorum)
	declare(t, ch, faults.sink, quorum)
	declare(t, ch, faults.full, amqp.Table{"x-max-length": int32(0), "x-overflow": "reject-publish"})
	if err := ch.QueueBind(kept, "#", cfg.Exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	all := &keptMessages{queue: kept, address: address}
	return brokertest.Harness{
		Publisher: p, Close: p.Close, Arrived: all.arrived,
		Refuse: faults.refuse.Mark, LoseAcks: faults.loseAck.Mark, LoseMessages: faults.loseMsg.Mark,
		Drop: faults.Drop, Pause: faults.Pause, Resume: faults.Resume,
	}
}

// declare declares a queue that is deleted at the end of the test.
func declare(t testing.TB, ch *amqp.Channel, name string, args amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteQueue(t, ch, name) })
}

func deleteQueue(t testing.TB, ch *amqp.Channel, name string) {
	if _, err := ch.QueueDelete(name, false, false, false); err != nil {
		t.Errorf("delete queue %s: %v", name, err)
	}
}

// keptMessages are the messages read from a queue so far.
type keptMessages struct {
	queue, address string
	read           []*postrider.Message
}

// arrived reads new messages from the queue and returns all messages of a topic. Reading removes them from the queue.
func (k *keptMessages) arrived(t testing.TB, topic string) []*postrider.Message {
	t.Helper()
	ch := dial(t, k.address)
	defer ch.Close()
	mark := unique("mark")
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirmed, err := ch.PublishWithDeferredConfirm("", k.queue, true, false, amqp.Publishing{MessageId: mark})
	if err != nil || !confirmed.Wait() {
		t.Fatalf("mark the end of queue %s: %v", k.queue, err)
	}
	deliveries, err := ch.Consume(k.queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for d := range deliveries {
		if d.MessageId == mark {
			break
		}
		m, err := rabbitmqbroker.Decode(d)
		if err != nil {
			t.Fatalf("message %s: %v", d.MessageId, err)
		}
		k.read = append(k.read, m)
	}
	var all []*postrider.Message
	for _, m := range k.read {
		if m.Topic == topic {
			all = append(all, m)
		}
	}
	return all
}
