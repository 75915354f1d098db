// Package rabbitmqbroker publishes messages to RabbitMQ exchanges and reads them from queues for consumers.
//
// # Way of a message
//
// The topic is the routing key, in the exchange that Config.Exchange names; or every topic has an exchange of its own. The
// envelope travels as CloudEvents binary mode in the headers, the payload as the body, and ID, type, content type,
// correlation ID and time also as AMQP's own properties. Messages are persistent and mandatory: one that no queue takes has
// failed.
//
// # Order
//
// One Publish call keeps many messages in flight, but of each key only one: a follower is sent when the server has
// acknowledged the message before it. That is what keeps the order. Were both in flight, the first could be refused (by a
// queue that is full for a moment, or loses its leader) or lost with a connection, and the second be stored; sent again, the
// first would then stand behind it, and RabbitMQ, which knows nothing of second copies, would keep 2, 1, 2.
//
// So every first copy of a message in a queue stands behind the first copies of all messages before it in its key, and that
// does not depend on timing: whatever an earlier connection, process or call still has on the way has a predecessor that is
// stored. A key's rate is bounded by the time to an acknowledgement; the publisher's is not, since different keys do not wait
// for each other.
//
// # Failure
//
//   - The connection breaks: every message without an acknowledgement fails with postrider.Unavailable. So do calls without a
//     connection. It is made again for ever, and what was declared is declared again.
//   - The server ends the channel because of a message (an exchange that is not there, no permission, too large) without
//     saying which: those that were under way are sent again one at a time, on channels of their own. The one that is at
//     fault fails, and the next to the same exchange and routing key go alone until the server takes one.
//   - No queue takes the message: it fails.
//   - A queue does not take it: it fails.
//   - The server is short of memory or disk space and accepts nothing: Unavailable.
//   - No acknowledgement within Config.PublishTimeout: Unavailable if nothing was acknowledged in that time, else the message failed.
//   - Too large for Config.MaxMessageBytes, or for the server: postrider.Dead.
//
// # Reading
//
// A Subscription has a connection, and on it a channel by which everything comes that it has unsettled. Whatever ends the
// channel takes the right to all of that away at the same moment: a broken connection, a deleted queue, a settlement that
// took longer than the server waits, and Close. The server puts it back where it was, and the next Receive reads on by another
// channel.
//
// From an ordered queue (SubscriberConfig.Ordered) a single message cannot be given back without losing its place, so Nack
// ends the channel too. The server then lets one process at a time read, its single active consumer, and gives what comes
// back to the next one before anything else.
package rabbitmqbroker
