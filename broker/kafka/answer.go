package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
)

// snooze is how long a message is snoozed if its partition does not accept messages.
const snooze = 10 * time.Second

// diagnosisWait bounds the diagnosis of a partition that does not answer.
const diagnosisWait = 2 * time.Second

// blame says what an error of a record applies to.
type blame int

const (
	// ofTheBatch: a broker rejected the batch, possibly because of another record in it.
	ofTheBatch blame = iota
	// ofTheTopic: all records of the topic fail.
	ofTheTopic
	// ofTheCluster: nothing can be published.
	ofTheCluster
	// unanswered: it is unknown whether the record was stored.
	unanswered
)

func blameFor(err error) blame {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID),
		errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.InvalidTopicException):
		return ofTheTopic
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kerr.ClusterAuthorizationFailed), refusesCredentials(err), refusesCertificate(err):
		return ofTheCluster
	case errors.Is(err, kerr.CorruptMessage): // concerns a batch, and may be repeated
		return ofTheBatch
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok && !k.Retriable {
		return ofTheBatch
	}
	return unanswered
}

// topicError returns the error of a topic's messages after an operation has failed.
func topicError(name, operation string, err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("topic %s is gone from Kafka, or was recreated: %w", name, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("the user may not %s topic %s of Kafka; run: kafka-acls.sh --add --allow-principal User:NAME --operation %s --topic %s: %w",
			operation, name, operation, name, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("topic %s: Kafka refuses the name: %w", name, err)
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok && !k.Retriable && blameFor(err) == ofTheBatch {
		return fmt.Errorf("topic %s: %s: %w", name, operation, err)
	}
	return clusterError(err)
}

// clusterError returns the error of messages that no broker accepts.
func clusterError(err error) error {
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		err = ErrClosed
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		err = fmt.Errorf("the user may not publish with an idempotent producer; run: kafka-acls.sh --add --allow-principal User:NAME --operation IdempotentWrite --cluster: %w", err)
	case refusesCredentials(err):
		err = fmt.Errorf("the broker refuses the credentials; check user, password and SASL mechanism: %w", err)
	}
	return postrider.Unavailable(fmt.Errorf("publish to Kafka: %w", err))
}

// outcome returns the error of a rejected message.
func (o *outgoing) outcome() error {
	if o.diagnosis != nil {
		return o.diagnosis
	}
	switch blameFor(o.err) {
	case ofTheTopic:
		return topicError(o.topic.name, "Write", o.err)
	case ofTheCluster:
		return clusterError(o.err)
	}
	if errors.Is(o.err, kerr.MessageTooLarge) || errors.Is(o.err, kerr.RecordListTooLarge) {
		return tooLarge(fmt.Errorf("topic %s: up to %d bytes with its headers, and the topic takes less than the %d that it did: %w", o.topic.name, o.size, o.topic.limit, o.err))
	}
	return fmt.Errorf("publish to Kafka topic %s: the broker refuses the message: %w", o.topic.name, o.err)
}

func tooLarge(err error) error { return postrider.Dead("too large for the broker", err) }

// diagnose determines why messages of a call, which started at began, were not answered.
func (p *Publisher) diagnose(messages []*outgoing, began time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), diagnosisWait)
	defer cancel()
	found := make(map[*topic]*kmsg.MetadataResponseTopic)
	var down error // if not nil, no broker answers
	for _, o := range messages {
		if o.state != rejected || blameFor(o.err) != unanswered {
			continue
		}
		if _, asked := found[o.topic]; !asked && down == nil {
			details, err := describeTopic(ctx, p.client, o.topic.name)
			if _, answered := errors.AsType[*kerr.Error](err); err != nil && !answered {
				down = err
			}
			found[o.topic] = details
		}
		o.diagnosis = p.diagnosis(o, began, found[o.topic], down)
	}
}

// diagnosis returns the error of a message that was not answered.
func (p *Publisher) diagnosis(o *outgoing, began time.Time, details *kmsg.MetadataResponseTopic, down error) error {
	text := fmt.Sprintf("publish to Kafka topic %s: no acknowledgement within %s; the topic may have the message", o.topic.name, p.cfg.PublishTimeout)
	if down != nil {
		return postrider.Unavailable(fmt.Errorf("%s: %w: no broker answers: %w", text, o.err, down))
	}
	if trouble := p.partitionTrouble(o, began, details); trouble != "" {
		return fmt.Errorf("%s: %w: %s: %w", text, o.err, trouble, postrider.Snooze(snooze))
	}
	return postrider.Unavailable(fmt.Errorf("%s: %w", text, o.err))
}

// partitionTrouble returns the problem of a message's partition; "" if none is known.
func (p *Publisher) partitionTrouble(o *outgoing, began time.Time, details *kmsg.MetadataResponseTopic) string {
	if details == nil {
		return ""
	}
	for _, partition := range details.Partitions {
		if partition.Partition != o.record.Partition {
			continue
		}
		switch {
		case partition.Leader < 0:
			return fmt.Sprintf("partition %d has no leader; start one of its brokers %v", partition.Partition, partition.Replicas)
		case len(partition.ISR) < o.topic.inSync:
			return fmt.Sprintf("partition %d has %d in-sync replicas of %d that min.insync.replicas asks for; start its brokers %v",
				partition.Partition, len(partition.ISR), o.topic.inSync, partition.OfflineReplicas)
		case p.answeredSince(began):
			return fmt.Sprintf("broker %d, which leads partition %d, takes nothing for it, and others do; see its log", partition.Leader, partition.Partition)
		}
	}
	return ""
}
