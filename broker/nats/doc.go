// Package natsbroker publishes messages to a NATS JetStream stream, and reads them back for consumers.
//
// # Way of a message
//
// The topic becomes the subject, behind Config.Prefix and with what NATS forbids in subjects escaped (see Subject). The
// envelope travels as CloudEvents binary mode headers, and the message ID also as Nats-Msg-Id, by which the stream drops
// second copies within its dedupe window.
//
// # Order
//
// One Publish call keeps many messages in flight, but of each key only one: a follower is sent when the server has
// acknowledged the message before it. That is what keeps the order. Were both in flight, the first could be refused, or
// lost with a connection or a stream leader, and the second be stored; sent again, the first would then stand behind it
// for good, since the stream drops the second copy of what it has.
//
// So every first copy of a message in the stream stands behind the first copies of all messages before it in its key, and
// that does not depend on timing: whatever an earlier connection, process or call still has on the way has a predecessor
// that is stored. A key's rate is bounded by the time to an acknowledgement (1,000 per second at a millisecond); the
// publisher's is not, since different keys do not wait for each other.
//
// # Failure
//
//   - The connection breaks: every message of the calls under way that has no answer fails with postrider.Unavailable. So
//     do calls without a connection. The connection is made again for ever.
//   - No answer within Config.AckWait: Unavailable if nothing was answered in that time, else the message failed.
//   - No stream takes the subject: the message fails; if the stream's subjects say that it should, the stream is without a
//     leader and thus Unavailable.
//   - The stream is full, sealed, or out of resources: Unavailable.
//   - Too large for the server or the stream: postrider.Dead.
//   - Not allowed to publish to the subject: the message fails.
//
// # Reading
//
// A group is a durable pull consumer. Each Subscription has its own NATS subscription and asks with one pull request at a
// time for what Receive wants, so that little waits unseen while the server counts the time to its settlement.
//
// The server delivers a message again when it was not settled within SubscriberConfig.AckWithin, behind whatever it has
// delivered meanwhile; so order holds only if there is nothing else, that is with one unsettled message at a time
// (SubscriberConfig.Ordered). A process counts the same time from when the message arrived, or from before it asked for
// more, and loses the right to work on it after nine tenths, so that it stops before another one begins.
//
// When the connection breaks, or the server says that the consumer is gone, stream and consumer are looked at again before
// anything more is asked for. If they are others under the same name, all that came from the old ones is lost.
package natsbroker
