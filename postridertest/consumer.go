package postridertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// partitions is the number of partitions of each topic.
const partitions = 4

// consumer is a consumer of a Flow: one process at a time.
type consumer struct {
	flow                    *Flow
	name                    string
	topics                  []string
	register                func(c *inbox.Consumer[*memory.Tx]) error
	beforeCommit, beforeAck chance

	mu  sync.Mutex
	now *inbox.Consumer[*memory.Tx] // the process that runs, nil while there is none
}

// begin returns a new process, which calls end if it crashes.
func (c *consumer) begin(end func()) (*inbox.Consumer[*memory.Tx], *process, error) {
	p := &process{Store: c.flow.store, beforeCommit: &c.beforeCommit, beforeAck: &c.beforeAck, end: end}
	subscriber, err := c.flow.broker.Subscriber(memorybroker.SubscriberConfig{
		Group: c.name, Topics: c.topics, Partitions: partitions, SettleFault: p.settleFault, RedeliveryWindow: patience,
	})
	if err != nil {
		return nil, nil, err
	}
	in, err := inbox.New[*memory.Tx](p)
	if err != nil {
		return nil, nil, err
	}
	running, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: c.name, Logger: c.flow.logger})
	if err != nil {
		return nil, nil, err
	}
	return running, p, c.register(running)
}

// run runs one process after another until the flow ends.
func (c *consumer) run() {
	for c.flow.life.Err() == nil {
		life, end := context.WithCancel(c.flow.life)
		running, p, err := c.begin(end)
		if err == nil {
			c.set(running)
			err = running.Run(life)
			c.set(nil)
		}
		end()
		if err != nil && !p.crashed.Load() {
			c.flow.t.Errorf("consumer %s: %v", c.name, err)
			return
		}
		sleep(c.flow.life, time.Second) // until it is started again
	}
}

func (c *consumer) set(running *inbox.Consumer[*memory.Tx]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = running
}

// ready says why the consumer does not receive messages, or nil.
func (c *consumer) ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return fmt.Errorf("consumer %s is not running", c.name)
	}
	if !c.now.Connected() {
		return errors.Join(fmt.Errorf("consumer %s is not connected", c.name), c.now.Ready())
	}
	return c.now.Ready()
}

// poison puts something that is not a message into each topic.
func (c *consumer) poison() {
	for _, topic := range c.topics {
		c.flow.broker.Poison(&postrider.Message{
			ID: "poison-" + c.name + "-" + topic, Type: poisonType, Topic: topic, Payload: []byte("\x00 not a message"),
		})
	}
}
