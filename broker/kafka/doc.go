// Package kafkabroker publishes messages to Kafka topics and reads them back for consumers.
//
// # Way of a message
//
// The topic becomes Kafka's topic, behind Config.Prefix and with what Kafka forbids in names escaped (see TopicName); or
// all messages go to the one of Config.Topic. The key becomes the record's key, and chooses the partition as the Java
// client does by default, so that records of other producers with the same key stand in the same partition. The envelope
// travels as CloudEvents headers in binary mode. An acknowledgement means that all in-sync replicas have the record.
//
// # Order
//
// Batches are pipelined, and yet a message is never accepted without those before it in its key. A message goes to the
// client only if all before it in its key are acknowledged, or if it comes to stand in the same record batch as the one
// before it; the partitioner sees to that (see partitioner). A broker takes a batch as a whole or not at all, so that it
// does not matter which batches fail, in which order, or how often they are sent: whatever an earlier connection, process
// or call still has on the way has predecessors that are stored. A single key thus goes as fast as one batch per
// acknowledgement (1 MB), different keys do not wait for each other, and the idempotent producer drops what the client
// itself sends twice.
//
// # Failure
//
//   - No answer within Config.PublishTimeout: Unavailable, if no broker answers at all. Otherwise the message is snoozed, which
//     counts no attempt, with what is wrong with its partition: no leader, or too few in-sync replicas.
//   - Refused (by a schema check, or for its timestamp, say): brokers refuse whole batches, so their messages are sent again
//     in halves until those are found that are refused alone. They fail, the others are delivered.
//   - Too large for the topic: postrider.Dead, before it is sent.
//   - The topic does not exist, or the user may not write to it: the message fails, with the command that helps.
//   - The credentials are refused: Open fails; later on, Unavailable.
//
// # The way back
//
// A Subscriber reads topics in a consumer group with cooperative rebalancing. Of each partition it commits the offset up to
// which everything is settled, and nothing beyond, whatever the order of the settlements. See Subscription for how
// deliveries and partitions come and go.
package kafkabroker
