package rabbitmqbroker

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

// defaultExchange is the name that RabbitMQ's tools use for the default exchange, to which every queue is bound by its
// name.
const defaultExchange = "amq.default"

// Queue types.
const (
	QuorumQueue  = "quorum"
	ClassicQueue = "classic"
)

// topology is what a publisher or subscriber requires on the server.
type topology struct {
	exchange     string // with perTopic, the prefix of the exchange names
	perTopic     bool
	exchangeType string
	checkOnly    bool
	queue        queueSettings // no queue if the name is empty
	// topics are the bindings of the queue: patterns of routing keys, or, with perTopic, topics.
	topics []string
	log    *slog.Logger
}

type queueSettings struct {
	name, kind                        string
	singleActive                      bool
	deliveryLimit                     int
	deadLetterExchange, deadLetterKey string
}

// route is the destination of a message.
type route struct{ exchange, key string }

func (t topology) route(topic, key string) route {
	switch {
	case t.perTopic:
		return route{t.exchange + topic, key}
	case t.exchange == defaultExchange:
		return route{"", topic}
	default:
		return route{t.exchange, topic}
	}
}

// prepare declares or checks everything that is known in advance: not the exchanges of a publisher with perTopic.
func (t topology) prepare(c *connection) error {
	if !t.perTopic {
		if err := t.prepareExchange(c, t.exchange); err != nil {
			return err
		}
	}
	if t.queue.name == "" {
		return nil
	}
	if err := t.prepareQueue(c); err != nil {
		return err
	}
	for _, topic := range t.topics {
		exchange, pattern := t.exchange, topic
		if t.perTopic {
			exchange, pattern = t.exchange+topic, "#"
			if err := t.prepareExchange(c, exchange); err != nil {
				return err
			}
		}
		if err := t.bind(c, exchange, pattern); err != nil {
			return err
		}
	}
	return nil
}

// prepareFor declares or checks what a message to a route requires.
func (t topology) prepareFor(c *connection, to route) error {
	if !t.perTopic {
		return t.prepare(c)
	}
	if err := t.prepareExchange(c, to.exchange); err != nil || t.queue.name == "" {
		return err
	}
	return t.bind(c, to.exchange, "#")
}

// prepareExchange declares an exchange, or checks that it exists.
func (t topology) prepareExchange(c *connection, name string) error {
	if name == "" || name == defaultExchange {
		return nil
	}
	err := onChannel(c, func(ch *amqp.Channel) error {
		if t.checkOnly {
			return ch.ExchangeDeclarePassive(name, t.exchangeType, true, false, false, false, nil)
		}
		return ch.ExchangeDeclare(name, t.exchangeType, true, false, false, false, nil)
	})
	return describe(err, "exchange "+name, map[int]string{
		amqp.NotFound: fmt.Sprintf("create it: rabbitmqadmin declare exchange name=%s type=%s durable=true", name, t.exchangeType),
		amqp.PreconditionFailed: fmt.Sprintf("it exists and is another one than asked for (durable, %s); set ExchangeType to what it is, or CheckOnly",
			t.exchangeType),
		amqp.CommandInvalid: fmt.Sprintf("the server knows no type %s; set ExchangeType to another, or enable the plugin that has it", t.exchangeType),
		amqp.AccessRefused: "let the user configure it (rabbitmqctl set_permissions), or create it and set CheckOnly; names that begin with " +
			"amq. are the server's",
	})
}

func (t topology) prepareQueue(c *connection) error {
	name := t.queue.name
	declare := func(args amqp.Table) error {
		return onChannel(c, func(ch *amqp.Channel) error {
			var err error
			if t.checkOnly {
				_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
			} else {
				_, err = ch.QueueDeclare(name, true, false, false, false, args)
			}
			return err
		})
	}
	args := t.queue.arguments(majorVersion(c))
	err := declare(args)
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.PreconditionFailed && args[deliveryLimit] == noDeliveryLimit {
		// The queue may have been created by RabbitMQ 3, which had no limit to disable.
		delete(args, deliveryLimit)
		if err = declare(args); err == nil {
			t.log.Warn("RabbitMQ drops messages of the queue that come back more than 20 times; to change that: "+
				`rabbitmqctl set_policy --apply-to quorum_queues NAME PATTERN '{"delivery-limit":-1}'`, "queue", name)
		}
	}
	return describe(err, "queue "+name, map[int]string{
		amqp.NotFound: fmt.Sprintf("create it: rabbitmqadmin declare queue name=%s queue_type=%s durable=true", name, t.queue.kind),
		amqp.PreconditionFailed: "it exists with other arguments, which cannot be changed; configure what it has, or set CheckOnly, " +
			"or delete it when it is empty",
		amqp.AccessRefused: "let the user configure it (rabbitmqctl set_permissions), or create it and set CheckOnly",
	})
}

func (t topology) bind(c *connection, exchange, pattern string) error {
	if t.checkOnly {
		return nil // clients cannot see bindings
	}
	err := onChannel(c, func(ch *amqp.Channel) error { return ch.QueueBind(t.queue.name, pattern, exchange, false, nil) })
	return describe(err, fmt.Sprintf("bind queue %s to exchange %s", t.queue.name, exchange), map[int]string{
		amqp.AccessRefused: "let the user write to the queue and read from the exchange (rabbitmqctl set_permissions), or bind it and set CheckOnly",
	})
}

const deliveryLimit = "x-delivery-limit"

// noDeliveryLimit disables the default limit of RabbitMQ 4.
var noDeliveryLimit any = int64(-1)

// arguments returns the queue's arguments for a server's version.
func (q queueSettings) arguments(version int) amqp.Table {
	args := amqp.Table{"x-queue-type": q.kind}
	if q.singleActive {
		args["x-single-active-consumer"] = true
	}
	switch {
	case q.deliveryLimit > 0:
		args[deliveryLimit] = int64(q.deliveryLimit)
	case q.kind == QuorumQueue && version >= 4:
		args[deliveryLimit] = noDeliveryLimit
	}
	if q.deadLetterExchange != "" {
		args["x-dead-letter-exchange"] = q.deadLetterExchange
	}
	if q.deadLetterKey != "" {
		args["x-dead-letter-routing-key"] = q.deadLetterKey
	}
	return args
}

// majorVersion returns the server's major version; 0 if unknown.
func majorVersion(c *connection) int {
	version, _ := c.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// onChannel calls do with its own channel, because an error closes the channel.
func onChannel(c *connection, do func(ch *amqp.Channel) error) error {
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	if err := do(ch); err != nil {
		return err // the server has closed the channel, or the connection is lost
	}
	return ch.Close()
}

// describe adds to an error what was being done and, by the server's code, what to do next. An end of the connection
// without such advice becomes Unavailable.
func describe(err error, what string, advice map[int]string) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("rabbitmq: %s: %w", what, err)
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ok && e.Server && advice[e.Code] != "":
		return fmt.Errorf("%w; %s", err, advice[e.Code])
	case ok && e.Server && e.Recover: // only the channel has ended
		return err
	default:
		return postrider.Unavailable(err)
	}
}
