package telemetry

import "slices"

// Kind is the kind of a metric.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes a metric.
type Metric struct {
	// Name is that of Prometheus. The name in OpenTelemetry has dots, and neither the unit nor "_total".
	Name string
	Kind Kind
	// Unit is "s", "By", or "" for a number.
	Unit   string
	Labels []string
	Help   string

	// read says that the value is read when it is exported, and not counted.
	read    bool
	buckets []float64
}

// The labels that several metrics have.
var (
	ofStore    = []string{"store"}
	ofRelay    = []string{"store", "relay", "side"}
	ofConsumer = []string{"store", "consumer"}
	ofSaga     = []string{"store", "saga"}
	ofTarget   = []string{"operation", "target"}
)

// The upper bounds of histograms.
var (
	callBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	waitBuckets  = slices.Concat(callBuckets, []float64{300, 900, 3600, 21600, 86400})
	countBuckets = []float64{1, 4, 16, 64, 256, 1024}
	sizeBuckets  = []float64{256, 1024, 4096, 16384, 65536, 262144, 1048576}
)

// Metrics returns all metrics, in the order of their documentation.
func Metrics() []Metric { return slices.Clone(metrics) }

func counted(name string, labels []string, help string) Metric {
	return Metric{Name: name, Kind: Counter, Labels: labels, Help: help}
}

func readCounter(name string, labels []string, help string) Metric {
	return Metric{Name: name, Kind: Counter, Labels: labels, Help: help, read: true}
}

func gauge(name, unit string, labels []string, help string) Metric {
	return Metric{Name: name, Kind: Gauge, Unit: unit, Labels: labels, Help: help, read: true}
}

func histogram(name, unit string, labels []string, buckets []float64, help string) Metric {
	return Metric{Name: name, Kind: Histogram, Unit: unit, Labels: labels, Help: help, buckets: buckets}
}

// and returns labels with more of them.
func and(labels []string, more ...string) []string { return slices.Concat(labels, more) }

var metrics = slices.Concat(storeMetrics, stateMetrics, relayMetrics, consumerMetrics, outboxMetrics, sagaMetrics, operationMetrics)

var storeMetrics = []Metric{
	gauge("postrider_build_info", "", []string{"version", "revision", "go_version"}, "Always 1; says which program this is."),
	gauge("postrider_store_up", "", and(ofStore, "system"), "Whether the last reading of the store's state succeeded. If not, the state is left out."),
	histogram("postrider_store_read_duration_seconds", "s", ofStore, callBuckets, "Time to read the state of the store."),
	gauge("postrider_clock_skew_seconds", "s", ofStore, "Clock of this process minus that of the database, as far as half a round trip can tell."),
	gauge("postrider_partitions", "", ofStore, "Partitions of the outbox."),
	readCounter("postrider_unrouted_total", ofStore, "Messages that every relay skipped. A topic is left out a week after its last message."),
	gauge("postrider_store_free_bytes", "By", ofStore, "Free space of the file system with the store's data, if its path is known."),
	gauge("postrider_store_size_bytes", "By", ofStore, "Size of the file system with the store's data, if its path is known."),
	gauge("postrider_table_bytes", "By", and(ofStore, "table"), "Size of a table with its indexes; table file: of the SQLite file."),
	gauge("postrider_maintenance_age_seconds", "s", ofStore, "Time since this process last maintained the log, or since it should have begun to. Take the minimum over the processes."),
	counted("postrider_audit_failures_total", ofStore, "Entries of the audit that this process could not write. Their actions were refused, or had failed."),
	counted("postrider_log_dropped_messages_total", ofStore, "Delivered messages that this process removed from the log."),
}

var stateMetrics = []Metric{
	gauge("postrider_oldest_undelivered_seconds", "s", ofRelay, "How long the oldest message has waited that should have been delivered: retried and held ones count, delayed ones do not."),
	gauge("postrider_delivery_target_seconds", "s", ofRelay, "Configured upper bound for postrider_oldest_undelivered_seconds."),
	gauge("postrider_backlog_messages", "", ofRelay, "Undelivered messages that are not parked, counted up to 10,000."),
	gauge("postrider_backlog_capped", "", ofRelay, "Whether the backlog is larger than its count."),
	gauge("postrider_backlog_age_seconds", "s", ofRelay, "Age of the oldest message of the backlog."),
	gauge("postrider_parked_messages", "", ofRelay, "Parked messages, counted up to 10,000."),
	gauge("postrider_parked_oldest_seconds", "s", ofRelay, "How long the longest has been parked, delayed messages included."),
	gauge("postrider_held_keys", "", ofRelay, "Held keys, counted up to 10,000."),
	gauge("postrider_held_keys_oldest_seconds", "s", ofRelay, "How long the longest has been held."),
	gauge("postrider_dead_letters", "", ofRelay, "Open dead letters, counted up to 10,000."),
	gauge("postrider_dead_letters_oldest_seconds", "s", ofRelay, "Age of the oldest open dead letter."),
	readCounter("postrider_delivered_total", ofRelay, "Messages delivered by all processes."),
	readCounter("postrider_failed_attempts_total", ofRelay, "Failed attempts of all processes."),
	gauge("postrider_last_settlement_age_seconds", "s", ofRelay, "Time since the last settlement, in the partition with a backlog where that is longest; 0 without a backlog."),
	gauge("postrider_relay_processes", "", ofRelay, "Processes that are alive."),
	gauge("postrider_partitions_unowned", "", ofRelay, "Partitions whose lease nobody holds."),
	gauge("postrider_relay_paused", "", ofRelay, "Whether an operator has paused it."),
	gauge("postrider_destination_up", "", ofRelay, "Whether some process reaches the destination. Left out until one has called it."),
}

var relayMetrics = []Metric{
	counted("postrider_relay_attempts_total", and(ofRelay, "outcome"), "Messages in calls of the publisher or of handlers, by outcome. With Config.Types also by type."),
	histogram("postrider_relay_attempt_duration_seconds", "s", ofRelay, callBuckets, "Time of a call of the publisher, a handler, or the handlers of a transaction."),
	histogram("postrider_relay_batch_messages", "", ofRelay, countBuckets, "Messages in a call."),
	histogram("postrider_relay_latency_seconds", "s", ofRelay, waitBuckets, "Time from writing to delivery, of messages that were never parked; of a larger call, 128 messages count. Corrected by postrider_clock_skew_seconds."),
	histogram("postrider_relay_parked_latency_seconds", "s", ofRelay, waitBuckets, "The same, of messages that were parked."),
	counted("postrider_relay_fetches_total", and(ofRelay, "result"), "Reads of the log, by result: some, none, error."),
	counted("postrider_relay_fetched_messages_total", and(ofRelay, "kind"), "Messages read: fresh, late (committed after later ones were read), due (parked)."),
	counted("postrider_relay_wakeups_total", and(ofRelay, "by"), "Reads of the log, by what caused them: commit, poll, room."),
	histogram("postrider_relay_fetch_duration_seconds", "s", ofRelay, callBuckets, "Time of a read of the log."),
	histogram("postrider_relay_settle_duration_seconds", "s", ofRelay, callBuckets, "Time to record outcomes."),
	counted("postrider_relay_parked_total", and(ofRelay, "reason"), "Messages that this process parked, by reason."),
	counted("postrider_dead_lettered_total", and(ofRelay, "reason"), "Messages that this process dead-lettered, by reason: attempts, undecodable, unhandled, rejected. Take the sum over the processes."),
	counted("postrider_relay_lost_settlements_total", ofRelay, "Settlements that were refused because the lease had ended: their messages may be delivered again."),
	counted("postrider_relay_lease_changes_total", and(ofRelay, "change"), "Leases that this process gained, released, lost, or let expire."),
	counted("postrider_relay_destination_outages_total", ofRelay, "How often this process found the destination unavailable."),
	counted("postrider_relay_errors_total", and(ofRelay, "op"), "Operations that failed and were repeated: fetch, due, settle, lease, maintain, listen."),
	gauge("postrider_relay_gate_closed", "", ofRelay, "Whether this process may start nothing: the relay is paused, or Config.Gate is closed, e.g. while a breaker is open."),
	gauge("postrider_relay_leases", "", ofRelay, "Partitions that this process holds."),
	gauge("postrider_relay_calls", "", ofRelay, "Calls in progress."),
	gauge("postrider_relay_calls_limit", "", ofRelay, "Largest number of calls at a time."),
	gauge("postrider_relay_in_flight_messages", "", ofRelay, "Messages in memory."),
	gauge("postrider_relay_in_flight_limit_messages", "", ofRelay, "Largest number of messages in memory."),
	gauge("postrider_relay_in_flight_bytes", "By", ofRelay, "Bytes of messages in memory."),
	gauge("postrider_relay_in_flight_limit_bytes", "By", ofRelay, "Largest number of bytes of messages in memory."),
}

var consumerMetrics = []Metric{
	readCounter("postrider_consumer_messages_total", and(ofConsumer, "outcome"), "Deliveries by outcome: applied, duplicate, skipped, parked, dead, discarded, lost, unacknowledged."),
	readCounter("postrider_consumer_failed_attempts_total", ofConsumer, "Failed attempts, of parked messages too."),
	readCounter("postrider_consumer_logs_replaced_total", ofConsumer, "How often the log of the source was another one than before: recreated, or without the end that was consumed."),
	readCounter("postrider_consumer_missing_messages_total", ofConsumer, "Offsets of a log that the broker removed before they were read, by any process. Take the maximum over the processes."),
	readCounter("postrider_consumer_removed_messages_total", ofConsumer, "Messages that the broker removed before they were read or, in a group, acknowledged, as far as this process noticed."),
	histogram("postrider_consumer_transaction_duration_seconds", "s", and(ofConsumer, "result"), callBuckets, "Time of a transaction with its handlers, by result: committed, failed."),
	histogram("postrider_consumer_end_to_end_seconds", "s", ofConsumer, waitBuckets, "Time from the message's Time to the commit of its effect, on two clocks."),
	gauge("postrider_consumer_longest_transaction_seconds", "s", ofConsumer, "How long the longest transaction in progress has taken; 0 without one."),
	gauge("postrider_consumer_connected", "", ofConsumer, "Whether the last attempt to read from the broker succeeded."),
	gauge("postrider_consumer_remembered_ids", "", ofConsumer, "IDs of consumed messages in the database, counted up to 10,000."),
	gauge("postrider_consumer_remembered_oldest_seconds", "s", ofConsumer, "Age of the oldest remembered ID."),
}

var outboxMetrics = []Metric{
	counted("postrider_outbox_written_messages_total", ofStore, "Messages that this process wrote into transactions, committed or not."),
	counted("postrider_outbox_refused_messages_total", and(ofStore, "reason"), "Messages for which Publish returned an error: invalid, store."),
	histogram("postrider_outbox_publish_duration_seconds", "s", ofStore, callBuckets, "Time of a call of Publish."),
	histogram("postrider_outbox_message_bytes", "By", ofStore, sizeBuckets, "Sizes of messages written."),
}

var sagaMetrics = []Metric{
	gauge("postrider_saga_active", "", and(ofSaga, "version", "status", "direction"), "Instances that have not ended."),
	gauge("postrider_saga_oldest_seconds", "s", and(ofSaga, "status", "direction"), "Time since the start of the oldest instance that has not ended."),
	gauge("postrider_saga_stuck", "", and(ofSaga, "direction"), "Instances that wait for an operator."),
	gauge("postrider_saga_definition_missing", "", and(ofSaga, "version"), "Instances whose definition no live process has."),
	counted("postrider_saga_started_total", and(ofSaga, "version", "kind"), "Instances that this process started."),
	counted("postrider_saga_ended_total", and(ofSaga, "version", "kind", "status", "cause"), "Instances that ended: completed, compensated, abandoned. The cause says why they were compensated, or were before an operator abandoned them: refused, timed out, failed, cancelled, operator."),
	counted("postrider_saga_steps_total", and(ofSaga, "step", "outcome"), "Steps by what became of them: done, refused, unknown (no answer in time), undone, skipped, late, stuck, released."),
	counted("postrider_saga_attempts_total", and(ofSaga, "step", "direction"), "Commands and undos that were sent, and expected steps of other services."),
	counted("postrider_saga_timed_out_total", and(ofSaga, "step"), "Steps without an answer in time; deadline: of the whole instance."),
	counted("postrider_saga_late_effect_total", ofSaga, "Steps that were done after their undo was confirmed, and are undone again, or after their instance was abandoned, which nothing undoes."),
	counted("postrider_saga_operator_total", and(ofSaga, "verb", "result"), "Operators' decisions about instances, by result: applied, refused."),
	counted("postrider_saga_conflicts_total", ofSaga, "Starts of an instance whose ID exists with other data; the caller gets an error."),
	counted("postrider_saga_not_found_total", and(ofStore, "engine"), "Messages that were dead-lettered since their instance does not exist."),
	counted("postrider_saga_ignored_total", and(ofStore, "engine"), "Timers and local steps that were ignored since their instance was removed."),
	histogram("postrider_saga_duration_seconds", "s", and(ofSaga, "kind", "status"), waitBuckets, "Time from the start of an instance to its end."),
	histogram("postrider_saga_compensation_duration_seconds", "s", and(ofSaga, "kind", "status"), waitBuckets, "Time from when an instance turned back to its end."),
	histogram("postrider_saga_step_duration_seconds", "s", and(ofSaga, "step", "outcome"), waitBuckets, "Time from the start of a step to its outcome; that of an undo includes the step."),
	histogram("postrider_saga_timer_lag_seconds", "s", ofSaga, waitBuckets, "How late timers of instances are."),
	histogram("postrider_saga_transition_seconds", "s", ofSaga, callBuckets, "Time to make a transition, without the commit."),
}

var operationMetrics = []Metric{
	counted("postrider_calls_total", and(ofTarget, "result"), "Calls of operations, by result: success, failure, throttled, declined, cancelled, open, at_capacity, rate_limited."),
	histogram("postrider_call_duration_seconds", "s", ofTarget, callBuckets, "Time of a call with its retries."),
	counted("postrider_retry_calls_total", and(ofTarget, "result"), "Calls by what became of their attempts: first, retried (succeeded after several), exhausted, not_retryable."),
	counted("postrider_retries_total", ofTarget, "Attempts after the first."),
	gauge("postrider_breaker_state", "", and(ofTarget, "state"), "1 for the state of the breaker: closed, open, half_open. An open one becomes half-open with the first call after its wait."),
	counted("postrider_breaker_changes_total", and(ofTarget, "state"), "Changes of the breaker, by its new state."),
}
