// Package redisbroker publishes messages to Redis streams and reads them back for consumers.
//
// # Streams
//
// A topic has Config.Partitions streams, named <prefix>{<topic>/<partition>}; a message's key chooses the partition. The
// braces make a Redis cluster place each stream by its own name, so that the partitions of a topic spread over the cluster.
// An entry holds a CloudEvent in binary mode: a field for each attribute (ce_id, ce_type, …), content-type, and data.
//
// # Order when publishing
//
// The messages of a call go out in transactions (MULTI … EXEC), one after another. Of a stream, a transaction is accepted
// as a whole or not at all: a server that is out of memory, read-only or loading refuses it before it runs. So a message is
// sent only when all before it in its key are stored or stand before it in the same transaction, and whatever an earlier
// connection still has on the way begins, in each key, with messages that are stored. The first copies of a key's messages
// therefore stand in order, whenever the call is repeated. Redis does not know second copies: a message whose answer is lost
// is sent again and stands there twice.
//
// # Order when consuming
//
// The entries that a group has not settled stand in its pending list, each under the name of a consumer; every Subscription
// is one. A script (take.lua) lets a consumer read on in a stream only if all that is pending there is its own. So a stream
// is worked on by one process at a time, in order, with many messages under way, and nothing has to be agreed upon between
// processes: who has pending entries owns the stream, and nobody does when there are none.
//
// What a process that died has pending is claimed, all of it and in order, by the next one that looks when none of it was
// extended for SubscriberConfig.AckWait. The process itself counts that time from before it sent its last command, and has
// lost what it has some time before others can claim it.
//
// Nack keeps the entry and those behind it pending, closes their Lost, and has them read again from the pending list, in
// order, when the time has come.
//
// For a fair share, processes enter themselves in a sorted set with an expiry, and each reads only the partitions that are
// its own by the order of names in it. That set serves fairness alone: when two processes see it differently, the script
// keeps the second one out.
//
// # What Redis may lose
//
// Redis answers before a write is on disk (unless appendfsync is always) and before a replica has it (unless
// Config.Replicas says to wait). See Publisher.Durability.
package redisbroker
