// Package config reads the configuration of the postrider binary: a YAML file, overridden by environment variables.
//
// It is strict. An unknown key, a value of the wrong kind or out of bounds and a reference to nothing are faults that
// name file, line and column, what stands there and what is allowed; every fault of a file is reported at once.
package config

import (
	"time"
)

// Config is a whole configuration. The zero value of a field means the default that docs/configuration.md names.
type Config struct {
	// Store is the database of the outbox when there is one; Stores are several, each with a name. Give one of the two.
	Store  Store   `yaml:"store"`
	Stores []Store `yaml:"stores"`
	Relays []Relay `yaml:"relays"`
	HTTP   HTTP    `yaml:"http"`
	Log    Log     `yaml:"log"`
	// StopTimeout is how long an ending process waits for calls under way before it cancels them. Default 30 s.
	StopTimeout time.Duration `yaml:"stop_timeout" min:"1ms"`

	file string
}

// Store is a database that holds an outbox.
type Store struct {
	// Name is what relays refer to; needed only in a list of stores.
	Name string `yaml:"name"`
	// URL is sqlite:FILE or postgres://….
	URL string `yaml:"url"`
	// Schema is the PostgreSQL schema of the tables, Prefix what their names begin with.
	Schema string `yaml:"schema"`
	Prefix string `yaml:"prefix"`
	// Partitions is the number of partitions when migrate creates the outbox. Default 8.
	Partitions int `yaml:"partitions" min:"1" max:"1024"`
	// Notify is the interval at which commits are told to relays in other processes; 0 is off. PostgreSQL only.
	Notify time.Duration `yaml:"notify" min:"0s" max:"1m"`
	// ListenURL is the PostgreSQL server on which commits of other processes are heard, not through a pooler in transaction
	// mode. Default: URL when Notify is set, otherwise none are heard and relays poll.
	ListenURL string `yaml:"listen_url"`
	// KeepDelivered is how long the log keeps delivered messages: nil is not given, 0 drops what every relay has delivered.
	KeepDelivered *time.Duration `yaml:"keep_delivered" min:"0s"`
	// MaxLogBytes drops the oldest delivered messages above this size; 0 is no limit.
	MaxLogBytes Size `yaml:"max_log_bytes" min:"0"`
	// KeepRedrives is how long redrives of dead letters are kept after their end; 0 is not given.
	KeepRedrives time.Duration `yaml:"keep_redrives" min:"1s"`
}

// Relay is one destination with a cursor of its own.
type Relay struct {
	Name string `yaml:"name"`
	// Store names one of Stores; needed only when there are several.
	Store     string    `yaml:"store"`
	Publisher Publisher `yaml:"publisher"`
	// Topics are the patterns of the topics that go to this destination. Default: all.
	Topics []string `yaml:"topics"`
	Start  Start    `yaml:"start"`
	// AcceptUnordered lets the relay start with a publisher that cannot keep the order of a key.
	AcceptUnordered bool `yaml:"accept_unordered"`
	// RequireDedupe and RequireMessageBytes are what the broker must promise for the relay to start.
	RequireDedupe       time.Duration `yaml:"require_dedupe" min:"0s"`
	RequireMessageBytes Size          `yaml:"require_message_bytes" min:"0"`

	// The rest is as in the package relay, whose defaults apply.

	Concurrency      int  `yaml:"concurrency" min:"1" max:"10000"`
	MaxBatch         int  `yaml:"max_batch" min:"1" max:"100000"`
	MaxInFlight      int  `yaml:"max_in_flight" min:"1" max:"10000000"`
	MaxInFlightBytes Size `yaml:"max_in_flight_bytes" min:"1KiB" max:"1TiB"`
	MaxHeldKeys      int  `yaml:"max_held_keys" min:"1" max:"100000000"`

	MaxAttempts    int           `yaml:"max_attempts" min:"1" max:"1000000"`
	BackoffBase    time.Duration `yaml:"backoff_base" min:"1ms"`
	BackoffMax     time.Duration `yaml:"backoff_max" min:"1ms"`
	OnDead         OnDead        `yaml:"on_dead"`
	ParkAfter      time.Duration `yaml:"park_after" min:"10ms"`
	AttemptTimeout time.Duration `yaml:"attempt_timeout" min:"10ms"`

	LeaseTTL       time.Duration `yaml:"lease_ttl" min:"1s" max:"1h"`
	PollMin        time.Duration `yaml:"poll_min" min:"1ms"`
	PollMax        time.Duration `yaml:"poll_max" min:"1ms"`
	SettleInterval time.Duration `yaml:"settle_interval" min:"1ms"`
	SettleBatch    int           `yaml:"settle_batch" min:"1" max:"100000"`
}

// Publisher is a broker to publish to.
type Publisher struct {
	// URL names the broker and its options, e.g. nats://127.0.0.1:4222?stream=ORDERS.
	URL string `yaml:"url"`
	// Options are the same options as in the query of URL; they win over it. They may hold what should not stand in a URL.
	Options map[string]string `yaml:"options"`
}

// Shorthand lets `publisher: URL` stand for `publisher: {url: URL}`.
func (p *Publisher) Shorthand(text string) { p.URL = text }

// HTTP is where the process answers /livez and /readyz.
type HTTP struct {
	// Listen is host:port; empty answers nowhere.
	Listen string `yaml:"listen"`
}

// Log is what is logged on standard error and how.
type Log struct {
	Level  Level  `yaml:"level"`
	Format Format `yaml:"format"`
}

// OnDead is what becomes of a key whose head died.
type OnDead string

// Allowed lists the values.
func (OnDead) Allowed() []string { return []string{"continue", "hold"} }

// Start is where a relay that is new to the log begins.
type Start string

// Allowed lists the values.
func (Start) Allowed() []string { return []string{"oldest", "now"} }

// Level is the least important level that is logged.
type Level string

// Allowed lists the values.
func (Level) Allowed() []string { return []string{"debug", "info", "warn", "error"} }

// Format is how log lines are written.
type Format string

// Allowed lists the values.
func (Format) Allowed() []string { return []string{"text", "json"} }
