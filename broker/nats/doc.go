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
// What keeps the order is one rule: of two messages of a key, the second is given to the stream only where it has the first.
// Were both on the way without it, the first could be refused, or lost with a connection or a stream leader, and the second be
// stored; sent again, the first would then stand behind it for good, since the stream drops the second copy of what it has.
//
// There are two ways to keep the rule.
//
//   - In fast batches (nats-server 2.14), the server keeps it: the messages of a batch are numbered, and the stream takes a
//     number only if it has, or has had, all before it. All messages of a call follow one another without waiting, those of
//     one key too, and the server answers for some hundred at a time.
//   - One by one, the publisher keeps it: of each key one message is in flight, and a follower is sent when the server has
//     acknowledged the message before it.
//
// So every first copy of a message in the stream stands behind the first copies of all messages before it in its key, and
// that does not depend on timing: whatever an earlier connection, process or call still has on the way has a predecessor
// that is stored. Batches and single messages of several publishers may interleave in any way, because each keeps the rule by
// itself, and a copy that comes second changes nothing.
//
// A batch ends at the first message that is missing or refused. What it leaves open goes one by one: it has not been stored,
// or is recognised by its ID, and so each message gets an answer of its own. The same goes for subjects that the stream is not
// known to take, for calls of one message, and where the server has too many batches.
//
// Batches are used where the stream allows them (allow_batched) and has one replica; docs/adr/0008-nats-fast-batches.md says
// why not with more, and in which rare cases limits that are reached or changed at that moment cost a key its order. The
// publisher looks at the stream again every 10 s while it is busy. One by one, a key's rate is bounded by the time to an
// acknowledgement (1,000 per second at a millisecond).
//
// # Failure
//
//   - The connection breaks: every message of the calls under way that is not known to be stored fails with
//     postrider.Unavailable. So do calls without a connection. The connection is made again for ever.
//   - No answer within Config.PublishTimeout: Unavailable if nothing was answered in that time; else a batch is asked about again, one
//     by one, and a message that was alone has failed.
//   - No stream takes the subject: the message fails; if the stream's subjects say that it should, the stream is without a
//     leader and thus Unavailable. Another stream has stored it: the message fails.
//   - Another program answers on the subject: that is no answer.
//   - The stream is full, sealed, or out of resources: Unavailable.
//   - Too large for the server or the stream: postrider.Dead.
//   - Not allowed to publish to the subject: the message fails.
//
// # Reading
//
// A group is a durable pull consumer. Each Subscription has its own NATS subscription and asks with one pull request at a
// time for what Receive wants, so that little waits unseen while the server counts the time to its settlement.
//
// The server delivers a message again when it was not settled within SubscriberConfig.AckWait, behind whatever it has
// delivered meanwhile; so order holds only if there is nothing else, that is with one unsettled message at a time
// (SubscriberConfig.Ordered). A process counts the same time from when the message arrived, with Ordered from when it asked
// for it, or from before it asked for more, and loses the right to work on it after nine tenths, so that it stops before
// another one begins. So that asking does not take too much of it, with Ordered a pull request ends after a quarter of it.
//
// When the connection breaks, or the server says that the consumer is gone, stream and consumer are looked at again before
// anything more is asked for. If they are others under the same name, all that came from the old ones is lost.
package natsbroker
