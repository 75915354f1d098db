// Package dashboard describes the dashboards of Grafana in deploy/grafana, which a test generates from it.
package dashboard

import "strings"

// Dashboard is a page of panels.
type Dashboard struct {
	// File is the name of its file without extension, and its UID.
	File, Title string
	Panels      []Panel
}

// Panel shows queries over time.
type Panel struct {
	Title, Help string
	// Unit is Grafana's: "s", "bytes", "short", "ops", "percentunit".
	Unit    string
	Queries []Query
}

// Query is an expression of PromQL with the text of its legend.
type Query struct{ Expr, Legend string }

// The variables of all dashboards select stores and relays; the window of rates is four scrapes.
const (
	Selected = `store=~"$store",relay=~"$relay"`
	Window   = "$__rate_interval"
)

// All is the query as Grafana sends it when everything is selected, with rates over a minute.
func (q Query) All() string {
	return strings.NewReplacer("$store", ".*", "$relay", ".*", Window, "1m").Replace(q.Expr)
}

const byRelay = "{{store}} {{relay}}"

// state is a panel of the state of relays, which several processes export.
func state(title, help, unit, metric string) Panel {
	return Panel{title, help, unit, []Query{{"max by (store, relay, side) (" + metric + "{" + Selected + "})", byRelay}}}
}

// rate is a panel of what processes count, by one more label.
func rate(title, help, metric, by string) Panel {
	legend := byRelay
	if by != "" {
		legend, by = "{{"+by+"}}", ", "+by
	}
	return Panel{title, help, "ops", []Query{{"sum by (store, relay" + by + ") (rate(" + metric + "{" + Selected + "}[" + Window + "]))", legend}}}
}

// quantiles is a panel of the distribution of a histogram.
func quantiles(title, help, metric, by string, selected string) Panel {
	p := Panel{Title: title, Help: help, Unit: "s"}
	for _, q := range []string{"0.5", "0.95", "0.99"} {
		p.Queries = append(p.Queries, Query{
			"histogram_quantile(" + q + ", sum by (le, " + by + ") (rate(" + metric + "_bucket" + selected + "[" + Window + "])))", "p" + q[2:] + " {{" + by + "}}",
		})
	}
	return p
}

// All returns the dashboards.
func All() []Dashboard {
	return []Dashboard{delivery(), relays(), consumers(), sagas(), database()}
}

func delivery() Dashboard {
	return Dashboard{"postrider-delivery", "Postrider: delivery", []Panel{
		{"Late share of the last hour", "The objective allows 0.5%.", "percentunit",
			[]Query{{"store_relay_side:postrider_late:ratio1h{" + Selected + "}", byRelay}}},
		{"Oldest undelivered message and its target", "Retried and held messages count, delayed ones do not.", "s", []Query{
			{"max by (store, relay, side) (postrider_oldest_undelivered_seconds{" + Selected + "})", byRelay},
			{"max by (store, relay, side) (postrider_delivery_target_seconds{" + Selected + "})", "target " + byRelay}}},
		{"Written and delivered", "Per second.", "ops", []Query{
			{`sum by (store) (rate(postrider_outbox_written_messages_total{store=~"$store"}[` + Window + `]))`, "written {{store}}"},
			{"max by (store, relay, side) (rate(postrider_delivered_total{" + Selected + "}[" + Window + "]))", "delivered " + byRelay}}},
		state("Backlog", "Undelivered messages that are not parked, counted up to 10,000.", "short", "postrider_backlog_messages"),
		state("Open dead letters", "Counted up to 10,000.", "short", "postrider_dead_letters"),
		rate("New dead letters", "Per second, by reason.", "postrider_dead_lettered_total", "reason"),
		state("Held keys", "Counted up to 10,000.", "short", "postrider_held_keys"),
		state("Longest held key", "How long it has been held.", "s", "postrider_held_keys_oldest_seconds"),
		state("Processes", "Alive, by relay.", "short", "postrider_relay_processes"),
		state("Destination up", "0: every process finds it unavailable.", "short", "postrider_destination_up"),
	}}
}

func relays() Dashboard {
	ofRelay := "{" + Selected + "}"
	return Dashboard{"postrider-relay", "Postrider: relay", []Panel{
		rate("Attempts by outcome", "Messages in calls, per second.", "postrider_relay_attempts_total", "outcome"),
		quantiles("Time of a call", "Of the publisher or of a handler.", "postrider_relay_attempt_duration_seconds", "relay", ofRelay),
		quantiles("Latency", "From writing to delivery, of messages that were never parked.", "postrider_relay_latency_seconds", "relay", ofRelay),
		quantiles("Latency of parked messages", "From writing to delivery.", "postrider_relay_parked_latency_seconds", "relay", ofRelay),
		{"Messages in a call", "Average.", "short", []Query{{"sum by (store, relay) (rate(postrider_relay_batch_messages_sum" + ofRelay + "[" + Window +
			"])) / sum by (store, relay) (rate(postrider_relay_batch_messages_count" + ofRelay + "[" + Window + "]))", byRelay}}},
		rate("Wake-ups", "Reads of the log, by what caused them.", "postrider_relay_wakeups_total", "by"),
		rate("Messages read", "Fresh, late, and parked ones that are due.", "postrider_relay_fetched_messages_total", "kind"),
		quantiles("Time to record outcomes", "Of a settlement.", "postrider_relay_settle_duration_seconds", "relay", ofRelay),
		rate("Parked", "By reason.", "postrider_relay_parked_total", "reason"),
		{"Messages in memory and their limit", "Of all processes.", "short", []Query{
			{"sum by (store, relay) (postrider_relay_in_flight_messages" + ofRelay + ")", byRelay},
			{"sum by (store, relay) (postrider_relay_in_flight_limit_messages" + ofRelay + ")", "limit " + byRelay}}},
		{"Calls in progress and their limit", "Of all processes.", "short", []Query{
			{"sum by (store, relay) (postrider_relay_calls" + ofRelay + ")", byRelay},
			{"sum by (store, relay) (postrider_relay_calls_limit" + ofRelay + ")", "limit " + byRelay}}},
		rate("Changes of leases", "Gained, released, lost, expired.", "postrider_relay_lease_changes_total", "change"),
		rate("Lost settlements", "Their messages may be delivered again.", "postrider_relay_lost_settlements_total", ""),
		rate("Outages of the destination", "Found by a process.", "postrider_relay_destination_outages_total", ""),
		rate("Errors", "Operations that failed and were repeated.", "postrider_relay_errors_total", "op"),
		state("Paused", "1: an operator has paused it.", "short", "postrider_relay_paused"),
		state("Gate closed", "1: nothing is started, e.g. while the breaker of a dependency is open.", "short", "postrider_relay_gate_closed"),
		ofOperations("Breakers that are not closed", "1: open, or half-open.", "short", `max by (operation, target, state) (postrider_breaker_state{state!="closed"})`, "state"),
		ofOperations("Calls of operations", "Per second, by result.", "ops", "sum by (operation, target, result) (rate(postrider_calls_total{}["+Window+"]))", "result"),
		quantiles("Time of a call of an operation", "With its retries.", "postrider_call_duration_seconds", "operation", "{}"),
	}}
}

// ofOperations is a panel of the calls of package resilience.
func ofOperations(title, help, unit, expr, by string) Panel {
	return Panel{title, help, unit, []Query{{expr, "{{operation}} {{target}} {{" + by + "}}"}}}
}

func consumers() Dashboard {
	const selected = `{store=~"$store"}`
	return Dashboard{"postrider-consumer", "Postrider: consumer", []Panel{
		{"Messages by outcome", "Per second.", "ops", []Query{{"sum by (store, consumer, outcome) (rate(postrider_consumer_messages_total" + selected + "[" + Window + "]))", "{{consumer}} {{outcome}}"}}},
		{"Failed attempts", "Per second.", "ops", []Query{{"sum by (store, consumer) (rate(postrider_consumer_failed_attempts_total" + selected + "[" + Window + "]))", "{{consumer}}"}}},
		quantiles("Time of a transaction", "With its handlers.", "postrider_consumer_transaction_duration_seconds", "consumer", selected),
		quantiles("End to end", "From the message's time to the commit of its effect, on two clocks.", "postrider_consumer_end_to_end_seconds", "consumer", selected),
		{"Longest transaction", "Of those in progress: a handler may hang.", "s", []Query{{"max by (store, consumer) (postrider_consumer_longest_transaction_seconds" + selected + ")", "{{consumer}}"}}},
		{"Connected", "0: no process can read.", "short", []Query{{"max by (store, consumer) (postrider_consumer_connected" + selected + ")", "{{consumer}}"}}},
		{"Remembered IDs", "Counted up to 10,000.", "short", []Query{{"max by (store, consumer) (postrider_consumer_remembered_ids" + selected + ")", "{{consumer}}"}}},
		{"Oldest remembered ID", "Compare it with how long the source may deliver a message again.", "s", []Query{{"max by (store, consumer) (postrider_consumer_remembered_oldest_seconds" + selected + ")", "{{consumer}}"}}},
		{"Lost messages of the source", "Removed before they were read, and logs that were replaced.", "short", []Query{
			{"max by (store, consumer) (increase(postrider_consumer_missing_messages_total" + selected + "[" + Window + "]))", "removed {{consumer}}"},
			{"sum by (store, consumer) (increase(postrider_consumer_removed_messages_total" + selected + "[" + Window + "]))", "removed from a group {{consumer}}"},
			{"sum by (store, consumer) (increase(postrider_consumer_logs_replaced_total" + selected + "[" + Window + "]))", "replaced {{consumer}}"}}},
	}}
}

func sagas() Dashboard {
	const selected = `{store=~"$store"}`
	gauge := func(title, help, unit, metric, by string) Panel {
		return Panel{title, help, unit, []Query{{"max by (store, saga, " + by + ") (" + metric + selected + ")", "{{saga}} {{" + strings.ReplaceAll(by, ", ", "}} {{") + "}}"}}}
	}
	count := func(title, help, metric, by string) Panel {
		return Panel{title, help, "ops", []Query{{"sum by (store, saga, " + by + ") (rate(" + metric + selected + "[" + Window + "]))", "{{saga}} {{" + strings.ReplaceAll(by, ", ", "}} {{") + "}}"}}}
	}
	return Dashboard{"postrider-saga", "Postrider: sagas", []Panel{
		gauge("Active", "Instances that have not ended.", "short", "postrider_saga_active", "version, status"),
		gauge("Oldest active instance", "Since its start.", "s", "postrider_saga_oldest_seconds", "status"),
		gauge("Stuck", "They wait for an operator.", "short", "postrider_saga_stuck", "direction"),
		gauge("Without a definition", "No live process has the definition of these instances.", "short", "postrider_saga_definition_missing", "version"),
		count("Started", "Per second; orchestrated beside choreographed.", "postrider_saga_started_total", "kind"),
		count("Ended", "Per second, by status and cause.", "postrider_saga_ended_total", "status, cause"),
		{"Success rate", "Completed instances among those that ended.", "percentunit", []Query{{`sum by (store, saga) (rate(postrider_saga_ended_total{store=~"$store",status="completed"}[` +
			Window + `])) / sum by (store, saga) (rate(postrider_saga_ended_total` + selected + "[" + Window + "]))", "{{saga}}"}}},
		quantiles("Time to the end", "From start to end, by status.", "postrider_saga_duration_seconds", "status", selected),
		quantiles("Time of a compensation", "From turning back to the end, by status.", "postrider_saga_compensation_duration_seconds", "status", selected),
		quantiles("Time of a step", "From its start to its outcome.", "postrider_saga_step_duration_seconds", "step", selected),
		count("Steps", "Per second, by outcome.", "postrider_saga_steps_total", "step, outcome"),
		count("Attempts", "Commands and undos that were sent, per second.", "postrider_saga_attempts_total", "step, direction"),
		count("Time-outs", "Per second.", "postrider_saga_timed_out_total", "step"),
		quantiles("Lag of timers", "How late they are.", "postrider_saga_timer_lag_seconds", "saga", selected),
		{"Late effects", "Steps that were done after their instance had ended without them.", "short", []Query{{"sum by (store, saga) (increase(postrider_saga_late_effect_total" + selected + "[" + Window + "]))", "{{saga}}"}}},
		quantiles("Time of a transition", "Without the commit.", "postrider_saga_transition_seconds", "saga", selected),
		{"Refused messages", "For unknown instances, timers of removed ones, and starts with an ID that has other data.", "short", []Query{
			{"sum by (store, engine) (increase(postrider_saga_not_found_total" + selected + "[" + Window + "]))", "unknown {{engine}}"},
			{"sum by (store, engine) (increase(postrider_saga_ignored_total" + selected + "[" + Window + "]))", "removed {{engine}}"},
			{"sum by (store, saga) (increase(postrider_saga_conflicts_total" + selected + "[" + Window + "]))", "other data {{saga}}"}}},
		count("Decisions of operators", "Per second, by result.", "postrider_saga_operator_total", "verb, result"),
	}}
}

func database() Dashboard {
	const selected = `{store=~"$store"}`
	simple := func(title, help, unit, how, metric string) Panel {
		return Panel{title, help, unit, []Query{{how + " by (store) (" + metric + selected + ")", "{{store}}"}}}
	}
	return Dashboard{"postrider-database", "Postrider: database and processes", []Panel{
		simple("Store up", "0: no process can read it.", "short", "max", "postrider_store_up"),
		quantiles("Time to read the state", "Once for all scrapes of a process.", "postrider_store_read_duration_seconds", "store", selected),
		simple("Clock skew", "Process minus database.", "s", "max", "postrider_clock_skew_seconds"),
		simple("Free space", "Of the file system with the data, if its path is known.", "bytes", "min", "postrider_store_free_bytes"),
		{"Tables", "With their indexes.", "bytes", []Query{{"max by (store, table) (postrider_table_bytes" + selected + ")", "{{store}} {{table}}"}}},
		simple("Time since maintenance", "By any process.", "s", "min", "postrider_maintenance_age_seconds"),
		{"Messages dropped from the log", "Per second.", "ops", []Query{{"sum by (store) (rate(postrider_log_dropped_messages_total" + selected + "[" + Window + "]))", "{{store}}"}}},
		state("Partitions without an owner", "They should be 0 while processes run.", "short", "postrider_partitions_unowned"),
		state("Time since the last settlement", "In the partition with a backlog where that is longest.", "s", "postrider_last_settlement_age_seconds"),
		{"Programs", "Version and Go version.", "short", []Query{{"count by (version, go_version) (postrider_build_info)", "{{version}} {{go_version}}"}}},
		{"Memory", "Resident, by process.", "bytes", []Query{{"process_resident_memory_bytes and on (instance) postrider_build_info", "{{instance}}"}}},
	}}
}
