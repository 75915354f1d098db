package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// names are the quoted tables of one outbox, for use in SQL.
type names struct {
	migrations string
	prefix     string // of a table name, not quoted
	schema     string // not quoted
	replacer   *strings.Replacer
}

func newNames(c Config) names {
	n := names{prefix: c.Prefix, schema: c.Schema}
	var pairs []string
	for _, table := range []string{"migrations", "meta", "log", "log_seq_seq", "log_advance", "log_attach", "log_detach", "log_drop", "partitions", "relay_partitions", "leases", "incarnations",
		"incarnation", "decisions", "cursors", "relays", "relay_filters", "unrouted", "parked", "held", "dead",
		"aside_seq", "claims", "watermarks", "watermark_moves", "versions", "effects", "attempts",
		"dead_edits", "redrives", "sagas", "saga_history", "saga_aliases", "saga_labels", "saga_records", "records", "auth", "audit"} {
		pairs = append(pairs, "{"+table+"}", n.table(table))
	}
	n.migrations = n.table("migrations")
	unflushed := "null"
	if c.DeliverAfterFlush {
		unflushed = unflushedSQL
	}
	n.replacer = strings.NewReplacer(append(pairs, "{message}", messageColumns, "{unflushed}", unflushed)...)
	return n
}

func (n names) table(name string) string { return pgx.Identifier{n.schema, n.prefix + name}.Sanitize() }

func (n names) segment(g segment) string { return pgx.Identifier{n.schema, g.name}.Sanitize() }

// expand fills in table names and {message}, the columns of a message, and qualifies functions.
func (n names) expand(sql string) string { return qualify(n.replacer.Replace(sql)) }

// statements holds the frequently run statements with table names filled in.
type statements struct {
	open, written                                                              string
	fetch, flush, due, parkedState, lastSequence                               string
	heartbeat, begin, acquire, release, leave, holding, findHeld               string
	oneAcquirer, register, noteIncarnation, restoreLeases                      string
	newFilter, useFilter, fenceOthers, filters, countUnrouted                  string
	move, fence, fenceOne, parkFromLog, parkAgain, deadFromLog, deadFromParked string
	lockHeld                                                                   string
	removed, hold, releaseKeys, resumeKeys, latest                             string
	applied, notHeld, noneMissing, openDecisions                               string
	settlePlan, txPlan, acquirePlan                                            string
	inboxStatements
	sagaStatements
}

func newStatements(n names, bound string) statements {
	return statements{
		open: n.expand(openSQL), written: n.expand(writtenSQL),
		fetch: n.expand(fetchSQL), flush: n.expand(flushSQL), due: n.expand(dueSQL), parkedState: n.expand(parkedStateSQL),
		lastSequence: n.expand(lastSequenceSQL),
		applied:      n.expand(appliedSQL), notHeld: n.expand(notHeldSQL), noneMissing: n.expand(noneMissingSQL),
		openDecisions: n.expand(openDecisionsSQL), holding: n.expand(holdingSQL), findHeld: n.expand(findHeldSQL), oneAcquirer: n.expand(oneAcquirerSQL), register: n.expand(registerSQL),
		newFilter: n.expand(newFilterSQL), useFilter: n.expand(useFilterSQL), fenceOthers: n.expand(fenceOthersSQL),
		filters: n.expand(filtersSQL), countUnrouted: n.expand(countUnroutedSQL),
		noteIncarnation: n.expand(noteIncarnationSQL), restoreLeases: n.expand(restoreLeasesSQL),
		heartbeat: n.expand(heartbeatSQL), begin: n.expand(beginSQL), acquire: n.expand(acquireSQL),
		release: n.expand(releaseSQL), leave: n.expand(leaveSQL),
		move: n.expand(moveSQL), fence: n.expand(fenceSQL), fenceOne: n.expand(fmt.Sprintf(fenceOneSQL, bound)),
		parkFromLog: n.expand(parkFromLogSQL), parkAgain: n.expand(parkAgainSQL),
		deadFromLog: n.expand(deadFromLogSQL), deadFromParked: n.expand(deadFromParkedSQL),
		lockHeld: n.expand(lockHeldSQL),
		removed:  n.expand(removedSQL), hold: n.expand(holdSQL), releaseKeys: n.expand(releaseKeysSQL), resumeKeys: n.expand(resumeKeysSQL), latest: n.expand(latestSQL),
		settlePlan: qualify(settlePlanSQL + bound), txPlan: qualify(txPlanSQL + bound), acquirePlan: qualify(acquirePlanSQL + bound),
		inboxStatements: newInboxStatements(n), sagaStatements: newSagaStatements(n),
	}
}
