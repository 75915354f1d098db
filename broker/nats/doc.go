// Package natsbroker publishes messages to a NATS JetStream stream, and reads them back for consumers.
//
// # Message format
//
// The subject is the topic, with Config.Prefix prepended and characters that NATS does not allow escaped (see Subject).
// The envelope is sent as CloudEvents headers (binary mode). The message ID is also sent as Nats-Msg-Id, which the
// stream uses to drop duplicates within its dedupe window.
//
// # Order
//
// One rule keeps the order: the second of two messages of a key is given to the stream only if the stream has the first.
// If both were in flight, the first could be rejected, or lost with a connection or a stream leader, while the second is
// stored. When both are sent again, the first would be stored after the second, because the stream drops the
// duplicate of the second.
//
// There are two ways to follow the rule.
//
//   - Fast batches (nats-server 2.14): the server enforces it. The messages of a batch are numbered, and the stream
//     accepts a number only if it has, or has had, all lower ones. All messages of a call are sent without waiting,
//     including those of the same key, and the server acknowledges some hundreds at a time.
//   - Single messages: the publisher enforces it. Each key has one message in flight; the next one is sent when the
//     server has acknowledged it.
//
// The first copies of a key's messages are therefore stored in order, regardless of timing: the predecessors of every
// message that an earlier connection, process or call still has in flight are stored. Batches and single messages of
// several publishers may interleave in any way, because each publisher follows the rule, and a duplicate changes
// nothing.
//
// A batch ends at the first message that is missing or rejected. The rest of its messages are sent one by one: each is
// either not stored yet or recognized by its ID, so each gets its own answer. Messages are also sent one by one if the
// stream is not known to take the subject, if the call has only one message, or if the server has too many batches.
//
// Batches are used if the stream allows them (allow_batched) and has one replica. docs/adr/0008-nats-fast-batches.md
// explains why not with more replicas, and in which rare cases a limit that is reached or changed at that moment breaks
// the order of a key. While the publisher is busy, it reads the stream's configuration again every 10 s. Without
// batches, a key is limited to one message per acknowledgement (1,000 per second at one millisecond).
//
// # Errors
//
//   - The connection breaks: every message of the current calls that is not known to be stored fails with
//     postrider.Unavailable. Calls without a connection fail the same way. Reconnecting is tried forever.
//   - No answer within Config.PublishTimeout: Unavailable if nothing was answered in that time. Otherwise, the messages
//     of a batch are sent again one by one, and a single message fails.
//   - No stream takes the subject: the message fails. If the subject matches the stream's subjects, the stream has no
//     leader: Unavailable. If another stream has stored the message: the message fails.
//   - An answer from another program on the subject is ignored.
//   - The stream is full, sealed, or out of resources: Unavailable.
//   - Too large for the server or the stream: postrider.Dead.
//   - No permission to publish to the subject: the message fails.
//
// # Consuming
//
// A group is a durable pull consumer. Each Subscription has its own NATS subscription and has one pull request open at a
// time, for as many messages as Receive asks for, so that few messages wait in the client while their ack wait runs.
//
// The server redelivers a message that is not settled within SubscriberConfig.AckWait, after the messages that it has
// delivered meanwhile. Order therefore requires one unsettled message at a time (SubscriberConfig.Ordered). The process
// measures the same time from the arrival of the message (with Ordered: from the pull request, or from before it asked
// for more time) and loses the delivery after nine tenths of it, so that it stops before another process starts. With
// Ordered, a pull request ends after a quarter of AckWait, so that waiting for messages does not use up too much of it.
//
// After a lost connection, or when the server says that the consumer is gone, the subscription checks stream and
// consumer before its next pull request. If either was recreated under the same name, all deliveries of the old one are
// lost.
package natsbroker
