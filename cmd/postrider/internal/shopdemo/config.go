// Package shopdemo runs the shop of examples/shop, for people who watch it and for tests: under load, through its scenarios, in one
// process or four. The ledger of the shop is checked all the time.
package shopdemo

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
)

// Config configures the demo. The zero value of each other field means its default.
type Config struct {
	// Dir is for the files of databases, broker and logs. Required.
	Dir string
	// Store is the URL of a database server, with a schema for each service; empty: a SQLite file for each. Publisher is the URL
	// of a broker; empty: a NATS server in this process. Names of schemas, and of what is created at the broker, begin with Name.
	Store, Publisher, Name string
	// ShownStore and ShownPublisher name them on the screen.
	ShownStore, ShownPublisher string
	// Port is the port of orders; the other services have the following ones. Default: free ports.
	Port int
	// For is how long the shop is open. Load is what happens in it, see Loads.
	For  time.Duration
	Load string
	// Seed is that of the catalog and of the load.
	Seed uint64
	// Processes runs each service as a process of its own, which Command starts: it returns program and arguments.
	Processes bool
	Command   func(s Settings) (program string, args []string)
	// Faults lets handlers fail on demand.
	Faults bool
	// Compensate says who starts the undos of choreographed orders.
	Compensate saga.Compensation
	// InFlight is how many orders are in progress when a version is deployed. Default: 1,000.
	InFlight int
	// Limits are those of the sagas.
	Limits Limits

	Out io.Writer
	// Width returns the current number of terminal columns; nil when Out is not a terminal. Color enables colors.
	Width func() int
	Color bool
}

// Limits are the time limits of the shop's sagas and the other settings that scenarios change.
type Limits struct {
	StepTimeout, Deadline, UndoTimeout, LeaseTTL, Keep, Replenish time.Duration
	UndoAttempts, Version                                         int
	ReviewAbove                                                   int64
}

// Settings are those of one service.
type Settings struct {
	Service, Store, Publisher, Stream, Listen string
	Seed                                      uint64
	Faults                                    bool
	Compensate                                saga.Compensation
	Limits                                    Limits
}

// service is the configuration of the service for package shop.
func (s Settings) service(db shop.Database, broker shop.Broker, logger *slog.Logger) shop.Config {
	l := s.Limits
	c := shop.Config{
		Database: db, Broker: broker, Listen: s.Listen, Version: l.Version,
		Terms: shop.Terms{
			StepTimeout: l.StepTimeout, Deadline: l.Deadline, ReviewAbove: shop.Money(l.ReviewAbove), Compensate: s.Compensate,
		},
		UndoAttempts: l.UndoAttempts, UndoTimeout: l.UndoTimeout, Replenish: l.Replenish, Keep: l.Keep, LeaseTTL: l.LeaseTTL, Seed: s.Seed,
		Logger: logger,
	}
	if s.Faults {
		c.Faults = new(shop.Faults)
	}
	return c
}

// BrokenError says that a promise broke: what the demo found is not what Postrider promises.
type BrokenError struct{ What []string }

func (e *BrokenError) Error() string { return fmt.Sprintf("a promise broke: %q", e.What) }
