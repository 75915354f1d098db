package config

import "time"

// Consumer is a consumer of a program in Go. Its fields are as in inbox.ConsumerConfig, whose defaults apply.
type Consumer struct {
	Name string `yaml:"name"`
	// Disabled switches the consumer off.
	Disabled bool `yaml:"disabled"`

	KeepIDs      time.Duration `yaml:"keep_ids" min:"1s"`
	ReplayWindow time.Duration `yaml:"replay_window" min:"1s"`
	RequireOrder bool          `yaml:"require_order"`
	Replays      Replays       `yaml:"replays"`

	Concurrency      int  `yaml:"concurrency" min:"1" max:"10000"`
	RetryConcurrency int  `yaml:"retry_concurrency" min:"1" max:"10000"`
	Batch            int  `yaml:"batch" min:"1" max:"100000"`
	MaxInFlight      int  `yaml:"max_in_flight" min:"1" max:"10000000"`
	MaxInFlightBytes Size `yaml:"max_in_flight_bytes" min:"1KiB" max:"1TiB"`

	MaxAttempts     int           `yaml:"max_attempts" min:"1" max:"1000000"`
	LocalAttempts   int           `yaml:"local_attempts" min:"1" max:"1000000"`
	LocalFor        time.Duration `yaml:"local_for" min:"1ms"`
	ParkAfter       time.Duration `yaml:"park_after" min:"10ms"`
	BackoffBase     time.Duration `yaml:"backoff_base" min:"1ms"`
	BackoffMax      time.Duration `yaml:"backoff_max" min:"1ms"`
	Policies        []Policy      `yaml:"policies"`
	OnDead          OnDead        `yaml:"on_dead"`
	Unhandled       Unhandled     `yaml:"unhandled"`
	UnhandledFor    time.Duration `yaml:"unhandled_for" min:"1s"`
	UnavailableWait time.Duration `yaml:"unavailable_wait" min:"1ms"`
	AttemptTimeout  time.Duration `yaml:"attempt_timeout" min:"10ms"`

	LeaseTTL time.Duration `yaml:"lease_ttl" min:"1s" max:"1h"`
}

// Unhandled is what happens to messages without a handler.
type Unhandled string

// Allowed lists the values.
func (Unhandled) Allowed() []string { return []string{"hold", "skip"} }

// Replays is which replayed messages a consumer handles: those that name it, or all.
type Replays string

// Allowed lists the values.
func (Replays) Allowed() []string { return []string{"named", "all"} }
