// Package redisbroker publishes messages to Redis streams and reads them back for consumers.
//
// # Streams
//
// A topic has Config.Partitions streams, named <prefix>{<topic>/<partition>}; the message key selects the partition. The
// braces are a hash tag: a Redis cluster places each stream by the text between them, so the partitions of a topic
// spread over the cluster. An entry holds a CloudEvent in binary mode: a field for each attribute (ce_id, ce_type, …),
// content-type, and data.
//
// # Order when publishing
//
// The messages of a call are sent in transactions (MULTI … EXEC), one after another. A transaction is accepted as a
// whole or not at all: a server that is out of memory, read-only or loading rejects it before it runs. A message is sent
// only when its predecessors of the same key are stored or precede it in the same transaction. The first copies of a
// key's messages are therefore stored in order, however often the call is repeated and whatever an earlier connection
// still has in flight. Redis does not detect duplicates: a message whose answer is lost is sent again and stored twice.
//
// # Order when consuming
//
// Entries that a group has not settled are in its pending list, each assigned to a consumer. Every Subscription is a
// consumer. A script (take.lua) lets a consumer read new entries of a stream only if all pending entries of the stream
// are its own. So one process at a time works on a stream, in order, with many messages in progress, and the processes
// need no coordination: the owner of a stream is the process that has pending entries; without pending entries, there is
// no owner.
//
// If a process crashes, another process claims its pending entries, all of them and in order, once none of them was
// extended for SubscriberConfig.ClaimAfter. The process itself measures that time from before it sent its last command,
// and loses its deliveries some time before others can claim them.
//
// Nack keeps the entry and those after it pending, closes their Lost channels, and reads them again from the pending
// list, in order, after the delay.
//
// To share the partitions fairly, processes register in a sorted set with an expiry. The order of their names in the set
// decides which partitions each of them reads. The set serves only fairness: if two processes see different members, the
// script still lets only one of them read a stream.
//
// # Data loss
//
// Redis answers before a write is on disk (unless appendfsync is always) and before a replica has it (unless
// Config.Replicas requires that). See Publisher.Durability.
package redisbroker
