package main

import (
	"context"
	"errors"

	"github.com/postrider/postrider/bench/internal/report"
)

// suite is a set of entries that are measured in turn and compared.
type suite struct {
	name, title string
	// figure is the figure by which the rows are compared: "rate", which every run has, or one that the entries return.
	// unit is its unit.
	figure, unit string
	lower        bool // smaller is better
	also         []report.Column
	// slow: -quick skips the suite.
	slow bool
	// long: a run takes long however few messages it has, or is about many of them. The suite has a third of the rounds, with three
	// times the messages.
	long bool
	// most limits the rounds, 0 for no limit.
	most int
	// share is the fraction of the messages per run, for slow suites; 0 means all.
	share float64
	setup func(ctx context.Context, b *bundle) ([]entry, error)
}

// errMissing: a server that only some suites need is not there.
var errMissing = errors.New("not here; make bench installs it")

// entry is one way to do the work of a suite.
type entry struct {
	name string
	role report.Role
	// limit and peer name the entries that this one is compared with.
	limit, peer string
	// prepare prepares a run. It is not measured.
	prepare func(ctx context.Context) error
	// run does the work. The returned figures are added to the measured ones, or replace them.
	run func(ctx context.Context) (report.Figures, error)
	// messages is how many messages run moves, 0 for the suite's number.
	messages int
	// quoted is the figure of a peer that cannot be run here.
	quoted float64
}

// The figures of every run, and their column titles.
const (
	figureRate   = "rate"       // messages per second
	figureClient = "client_cpu" // processor time of this process, µs per message
	figureServer = "server_cpu" // processor time of the database server, µs per message
	figureBroker = "broker_cpu" // processor time of the broker, µs per message
	figureWAL    = "wal"        // write-ahead log, bytes per message
	figureAllocs = "allocs"     // allocations of this process per message
)

var usual = []report.Column{
	{Figure: figureClient, Title: "client µs/msg"}, {Figure: figureServer, Title: "server µs/msg"},
	{Figure: figureWAL, Title: "WAL B/msg"}, {Figure: figureAllocs, Title: "allocs/msg"},
}

func suiteNames() []string {
	var names []string
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// size returns the number of messages per run of a suite, and of its rounds.
func (o *options) size(s *suite) (messages, rounds int) {
	messages, rounds = o.messages, o.rounds
	if s.long && !o.quick {
		messages, rounds = 3*messages, max(rounds/3, 1)
	}
	if s.share > 0 {
		messages = max(int(s.share*float64(messages)), 1000)
	}
	if s.most > 0 {
		rounds = min(rounds, s.most)
	}
	return messages, rounds
}
