// Package kafkabroker publishes messages to Kafka topics and reads them back for consumers.
//
// # Message format
//
// Each topic is written to the Kafka topic of the same name, with Config.Prefix prepended and characters that Kafka does
// not allow escaped (see TopicName). With Config.Topic, all messages go to that one topic. The message key is the record
// key. It selects the partition with the Java client's default partitioner, so records with the same key from other
// producers go to the same partition. The envelope is sent as CloudEvents headers (binary mode). A message is accepted
// when all in-sync replicas have stored it.
//
// # Order
//
// Batches are pipelined, but a message is never stored without its predecessors of the same key. The publisher passes a
// message to the client only when all its predecessors are acknowledged, or when it goes into the same record batch as
// its predecessor; the partitioner ensures this (see partitioner). A broker stores a batch as a whole or not at all. It
// therefore does not matter which batches fail, in which order, or how often they are sent: the predecessors of every
// message that an earlier connection, process or call still has in flight are stored. A single key is limited to one
// batch (1 MB) per acknowledgement, different keys do not wait for each other, and the idempotent producer drops the
// client's own duplicates.
//
// # Errors
//
//   - No answer within Config.PublishTimeout: Unavailable if no broker answers at all. Otherwise the message is snoozed,
//     which does not count as an attempt; the error names the problem of its partition: no leader, or too few in-sync
//     replicas.
//   - Rejected, for example by a schema check or because of its timestamp: brokers reject whole batches, so the messages
//     of a rejected batch are sent again in halves until only the messages that are rejected on their own are left.
//     These fail, the others are delivered.
//   - Too large for the topic: postrider.Dead, before it is sent.
//   - The topic does not exist, or the user may not write to it: the message fails with an error that names the command
//     to fix it.
//   - Wrong credentials: Open fails; later, Unavailable.
//
// # Consuming
//
// A Subscriber reads topics in a consumer group with cooperative rebalancing. For each partition it commits the offset
// up to which all messages are settled, never more, in whatever order they are settled. See Subscription for deliveries
// and partition assignment.
package kafkabroker
