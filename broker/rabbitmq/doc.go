// Package rabbitmqbroker publishes messages to RabbitMQ exchanges and reads them from queues for consumers.
//
// # Message format
//
// The topic is the routing key in the exchange Config.Exchange; with Config.ExchangePerTopic, every topic has its own
// exchange. The envelope is sent as CloudEvents headers (binary mode), the payload as the body. ID, type, content type,
// correlation ID and time are also sent as AMQP properties. Messages are persistent and mandatory: a message that is not
// routed to any queue fails.
//
// # Order
//
// A Publish call keeps many messages in flight, but only one per key: the next one is sent when the server has
// acknowledged its predecessor. This keeps the order. If both were in flight, the first could be rejected (by a queue
// that is full for a moment, or loses its leader) or lost with a connection, while the second is stored. After both are
// sent again, the queue would contain 2, 1, 2, because RabbitMQ does not detect duplicates.
//
// The first copies of a key's messages are therefore stored in order, regardless of timing: the predecessors of every
// message that an earlier connection, process or call still has in flight are stored. The rate of a key is limited to
// one message per acknowledgement; the rate of the publisher is not, because different keys do not wait for each other.
//
// # Errors
//
//   - The connection breaks: every unacknowledged message fails with postrider.Unavailable. Calls without a connection
//     fail the same way. Reconnecting is tried forever; after a reconnect, exchanges and queues are declared again.
//   - The server closes the channel because of a message (exchange missing, no permission, too large) without saying
//     which one: the messages in flight are sent again one at a time, each on its own channel. The message that caused
//     the error fails, and later messages to the same exchange and routing key are sent alone until the server accepts
//     one.
//   - No queue takes the message: it fails.
//   - A queue rejects it: it fails.
//   - The server is short of memory or disk space and accepts no messages: Unavailable.
//   - No acknowledgement within Config.PublishTimeout: Unavailable if nothing was acknowledged in that time, otherwise
//     the message fails.
//   - Too large for Config.MaxMessageBytes, or for the server: postrider.Dead.
//
// # Consuming
//
// A Subscription has one connection, and on it one channel at a time that delivers its messages. When the channel ends,
// all its unsettled deliveries are lost at the same moment. Causes are a broken connection, a deleted queue, a
// settlement that took longer than the server waits, and Close. The server requeues the messages in their place, and the
// next Receive opens another channel.
//
// A single message cannot be returned to an ordered queue (SubscriberConfig.Ordered) without losing its place, so Nack
// closes the channel too. The server lets only one process read at a time, the single active consumer, and redelivers
// requeued messages to the next one before all others.
package rabbitmqbroker
