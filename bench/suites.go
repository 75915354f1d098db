package main

import "github.com/postrider/postrider/bench/internal/report"

// suites are all suites, in the order in which they run.
var suites = []suite{
	publishSuite("publish", "Publish with a business row, one transaction each, 8 writers", 8, 0.3, publishWays),
	publishSuite("publish-1", "Publish with a business row, one transaction each, 1 writer", 1, 0.05, publishFewWays),
	publishSuite("publish-32", "Publish with a business row, one transaction each, 32 writers", 32, 0.3, publishFewWays),
	publishManySuite,
	drainSuite,
	jetStreamSuite,
	consumeSuite,
	latencySuite("latency", "Latency from commit to handler at 1,000 messages per second", 1000, 0.1),
	latencySuite("steady", "Latency from commit to handler at half of what writers and relay can do at most", 0, 0.2),
	togetherSuite,
	maintainedSuite,
	conditionsSuite,
	processesSuite,
	backlogSuite,
	memorySuite,
	idleSuite,
	sqlitePublishSuite,
	sqliteDrainSuite,
}

// promises are the required figures, as numbered in docs/performance.md.
var promises = []report.Promise{
	{Number: 1, Text: "publish in separate statements, to the same inserts by hand", Suite: "publish",
		Row: "Postrider, separate statements", With: handStatements, AtLeast: 0.97},
	{Number: 1, Text: "publish in one pgx.Batch, to the same inserts by hand", Suite: "publish",
		Row: "Postrider, one pgx.Batch", With: handBatch, AtLeast: 0.97},
	{Number: 2, Text: "drain to a batch handler, to a bare loop by cursor", Suite: "drain", Row: oursKeyed, With: bareLoop, AtLeast: 0.8},
	{Number: 2, Text: "drain to a batch handler, to Watermill's queue schema", Suite: "drain", Row: oursKeyed,
		With: watermillQueue(1000, 0).name, AtLeast: 1.5},
	{Number: 2, Text: "drain to a batch handler, to River", Suite: "drain", Row: oursKeyed, With: riverBest.name, AtLeast: 10},
	{Number: 3, Text: "drain to JetStream, to raw asynchronous publishing", Suite: "jetstream", Row: oursKeyed, With: rawPublish, AtLeast: 0.8},
	{Number: 3, Text: "drain to JetStream, to River", Suite: "jetstream", Row: oursKeyed, With: riverBest.name, AtLeast: 8},
	{Number: 4, Text: "p99 from commit to handler at 1,000 msg/s, to the bare round trips", Suite: "latency", Row: oursTogether, With: bareTrips, AtMost: 3},
	{Number: 5, Text: "drain with a transaction left open, to one without", Suite: "conditions", Row: drainOpenTx, With: undisturbed, AtLeast: 0.9},
	{Number: 5, Text: "publish and deliver with a transaction left open, to without", Suite: "together", Row: withOpenTx, With: withRelay, AtLeast: 0.9},
	{Number: 5, Text: "deliver from a backlog of 10 million, to one of 100,000", Suite: "backlog", Row: backlogLarge, With: backlogSmall, AtLeast: 0.9},
	{Number: 5, Text: "p99 of publishing while maintenance is killed, to without maintenance", Suite: "maintained", Row: maintainedKilled,
		With: maintainedNever, AtMost: 1.5},
	{Number: 6, Text: "peak memory of postrider relay, backlog of 1,000,000, MiB", Suite: "memory", Row: memoryLarge, Figure: figureRSS, AtMost: 64},
	{Number: 7, Text: "an idle relay, % of a core", Suite: "idle", Row: idleRelay, Figure: figureIdleCPU, AtMost: 0.5},
	{Number: 7, Text: "an idle relay, statements per second", Suite: "idle", Row: idleRelay, Figure: figureStatements, AtMost: 10},
	{Number: 8, Text: "consume a stream in order, 10,000 keys, to a loop by hand", Suite: "consume", Row: fromLog, With: handInOrder, AtLeast: 0.9},
	{Number: 8, Text: "consume a stream in order, one key, to a loop by hand", Suite: "consume", Row: fromLogOneKey, With: handInOrder, AtLeast: 0.8},
	{Number: 8, Text: "consume a stream in order, one in a transaction, to the queue in order", Suite: "consume", Row: fromLogSingle,
		With: fromQueue, AtLeast: 5},
	{Number: 8, Text: "consume with handlers of 20 ms, 16 at once, to the most possible", Suite: "consume", Row: fromLogSlow,
		Figure: figureOfMost, AtLeast: 0.9},
}
