// Package config reads the configuration of relays and consumers: a YAML file, overridden by environment variables. The postrider binary
// and programs in Go read the same file, with the same keys and defaults:
//
//	c, err := config.Load("postrider.yaml")
//	...
//	settings, err := c.Relay("billing") // a relay.Config
//	...
//	settings.Observer = observer // what a file cannot say
//	r, err := relay.New(store, settings)
//
// docs/configuration.md describes the keys.
//
// It is strict. An unknown key, a value of the wrong type or out of range and a dangling reference are errors that name
// file, line and column, the value and what is allowed; all errors of a file are reported at once.
package config

import (
	"reflect"
	"time"
)

// Config is a complete configuration. A zero field means the default given in docs/configuration.md.
type Config struct {
	// Store is the only outbox database; Stores are several, each with a name. Set one of the two.
	Store  Store   `yaml:"store"`
	Stores []Store `yaml:"stores"`
	Relays []Relay `yaml:"relays"`
	// Consumers are those of programs in Go; the binary has none.
	Consumers []Consumer `yaml:"consumers"`
	HTTP      HTTP       `yaml:"http"`
	Admin     Admin      `yaml:"admin"`
	Log       Log        `yaml:"log"`
	// Telemetry exports metrics and traces.
	Telemetry Telemetry `yaml:"telemetry"`
	// StopTimeout is how long an ending process waits for running calls before it cancels them. Default 30 s.
	StopTimeout time.Duration `yaml:"stop_timeout" min:"1ms"`

	file string
	// secrets: the file has secrets.
	secrets bool
	// handled has the relays without a publisher, by name, with what the binary says about them.
	handled map[string]Fault
}

// Store is a database that holds an outbox.
type Store struct {
	// Name is the name that relays refer to; needed only in a list of stores.
	Name string `yaml:"name"`
	// URL is sqlite:FILE, postgres://… or mysql://…. URLFile is a file that has it.
	URL     string `yaml:"url"`
	URLFile string `yaml:"url_file"`
	// Password is the password of the user in URL. PasswordFile is a file that has it.
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	// Schema is the PostgreSQL schema of the tables, Prefix the prefix of their names.
	Schema string `yaml:"schema"`
	Prefix string `yaml:"prefix"`
	// Partitions is the number of partitions when migrate creates the outbox. Default 8.
	Partitions int `yaml:"partitions" min:"1" max:"1024"`
	// Notify is the shortest interval at which relays in other processes are notified of commits: nil means not set, 0 is off.
	// PostgreSQL only.
	Notify *time.Duration `yaml:"notify" min:"0s" max:"1m"`
	// ListenURL is the PostgreSQL server on which to listen for commits of other processes, not through a pooler. Default: URL;
	// with Notify off, relays only poll.
	ListenURL     string `yaml:"listen_url"`
	ListenURLFile string `yaml:"listen_url_file"`
	// DeliverAfterFlush makes relays deliver messages only when their commit is on disk. PostgreSQL only.
	DeliverAfterFlush bool `yaml:"deliver_after_flush"`
	// KeepDelivered is how long the log keeps delivered messages: nil means not set, 0 removes what every relay has
	// delivered.
	KeepDelivered *time.Duration `yaml:"keep_delivered" min:"0s"`
	// KeepTopics are longer times for topics.
	KeepTopics []KeepTopic `yaml:"keep_topics"`
	// MaxLogBytes removes the oldest delivered messages above this size; 0 is no limit.
	MaxLogBytes Size `yaml:"max_log_bytes" min:"0"`
	// KeepRedrives is how long ended redrives of dead letters are kept; 0 means not set.
	KeepRedrives time.Duration `yaml:"keep_redrives" min:"1s"`
	// DataPath is a file or folder in the file system with the database's data, for the metrics of its free space. Default: that
	// of a SQLite file, none for others.
	DataPath string `yaml:"data_path"`
}

// given reports whether anything is set.
func (s *Store) given() bool { return !reflect.ValueOf(s).Elem().IsZero() }

// KeepTopic says how long the messages of some topics are kept.
type KeepTopic struct {
	// Topics are patterns.
	Topics []string      `yaml:"topics"`
	For    time.Duration `yaml:"for" min:"1s"`
}

// Kept returns KeepTopics by pattern.
func (s *Store) Kept() map[string]time.Duration {
	out := make(map[string]time.Duration)
	for _, k := range s.KeepTopics {
		for _, topic := range k.Topics {
			out[topic] = max(out[topic], k.For)
		}
	}
	return out
}

// Relay is one destination with its own cursor.
type Relay struct {
	Name string `yaml:"name"`
	// Store is the name of one of Stores; needed only when there are several.
	Store string `yaml:"store"`
	// Disabled switches the relay off.
	Disabled bool `yaml:"disabled"`
	// Publisher is required by the binary. A relay of a program can have handlers instead.
	Publisher Publisher `yaml:"publisher"`
	// Topics are the patterns of the topics for this destination. Default: all.
	Topics []string `yaml:"topics"`
	Start  Start    `yaml:"start"`
	// DeliveryTarget is the longest time that a message should wait, for alerts. Default 1 m.
	DeliveryTarget time.Duration `yaml:"delivery_target" min:"1s"`
	// AcceptUnordered permits a publisher that cannot keep the order of a key.
	AcceptUnordered bool `yaml:"accept_unordered"`
	// RequireDedupe and RequireMessageBytes are guarantees that the broker must give for the relay to start.
	RequireDedupe       time.Duration `yaml:"require_dedupe" min:"0s"`
	RequireMessageBytes Size          `yaml:"require_message_bytes" min:"0"`

	// The other fields are as in package relay, whose defaults apply.

	Concurrency      int  `yaml:"concurrency" min:"1" max:"10000"`
	MaxSlowCalls     int  `yaml:"max_slow_calls" min:"1" max:"100000"`
	MaxBatch         int  `yaml:"max_batch" min:"1" max:"100000"`
	TxBatch          int  `yaml:"tx_batch" min:"1" max:"100000"`
	MaxInFlight      int  `yaml:"max_in_flight" min:"1" max:"10000000"`
	MaxInFlightBytes Size `yaml:"max_in_flight_bytes" min:"1KiB" max:"1TiB"`
	MaxHeldKeys      int  `yaml:"max_held_keys" min:"1" max:"100000000"`

	MaxRate Rate `yaml:"max_rate" min:"1/h"`
	Burst   int  `yaml:"burst" min:"1" max:"10000000"`
	// RedriveRate bounds all redrives of the relay together.
	RedriveRate Rate `yaml:"redrive_rate" min:"1/h"`

	Policies        []Policy      `yaml:"policies"`
	MaxAttempts     int           `yaml:"max_attempts" min:"1" max:"1000000"`
	BackoffBase     time.Duration `yaml:"backoff_base" min:"1ms"`
	BackoffMax      time.Duration `yaml:"backoff_max" min:"1ms"`
	OnDead          OnDead        `yaml:"on_dead"`
	UnhandledFor    time.Duration `yaml:"unhandled_for" min:"1s"`
	UnavailableWait time.Duration `yaml:"unavailable_wait" min:"1ms"`
	ParkAfter       time.Duration `yaml:"park_after" min:"10ms"`
	AttemptTimeout  time.Duration `yaml:"attempt_timeout" min:"10ms"`

	LeaseTTL       time.Duration `yaml:"lease_ttl" min:"1s" max:"1h"`
	PollMin        time.Duration `yaml:"poll_min" min:"1ms"`
	PollMax        time.Duration `yaml:"poll_max" min:"1ms"`
	SettleInterval time.Duration `yaml:"settle_interval" min:"1ms"`
	SettleBatch    int           `yaml:"settle_batch" min:"1" max:"100000"`
}

// Policy is a relay.Policy.
type Policy struct {
	// Types are patterns of message types. Default: all.
	Types       []string      `yaml:"types"`
	MaxAttempts int           `yaml:"max_attempts" min:"1" max:"1000000"`
	Backoff     Backoff       `yaml:"backoff"`
	BackoffBase time.Duration `yaml:"backoff_base" min:"1ms"`
	BackoffMax  time.Duration `yaml:"backoff_max" min:"1ms"`
	// DiscardErrors are texts: an error that contains one of them discards the message.
	DiscardErrors []string `yaml:"discard_errors"`
}

// Publisher is a broker to publish to.
type Publisher struct {
	// URL names the broker and its options, e.g. nats://127.0.0.1:4222?stream=ORDERS. URLFile is a file that has it.
	URL     string `yaml:"url"`
	URLFile string `yaml:"url_file"`
	// Options are the same options as in the query of URL, which they override. Use them for values that should not be in
	// a URL. For an option with a secret, such as password, password_file names a file that has it.
	Options map[string]string `yaml:"options" names:"options"`
}

// Shorthand accepts `publisher: URL` for `publisher: {url: URL}`.
func (p *Publisher) Shorthand(text string) { p.URL = text }

// HTTP configures the server of /livez and /readyz.
type HTTP struct {
	// Listen is host:port; empty disables the server.
	Listen string `yaml:"listen"`
}

// Telemetry configures the export of metrics and traces.
type Telemetry struct {
	// Metrics is host:port of Prometheus's endpoint /metrics; it may be that of http.listen. Empty disables it.
	Metrics string `yaml:"metrics"`
	// OTLP is the URL of a collector. Empty: the standard environment variables.
	OTLP string `yaml:"otlp"`
	// ReadEvery is how long a reading of a store's state is used again. Default 10 s.
	ReadEvery time.Duration `yaml:"read_every" min:"100ms" max:"1h"`
	// Types are the types of messages that are labels.
	Types []string `yaml:"types"`
	// Prefix is what the names of metrics begin with. Default "postrider".
	Prefix string `yaml:"prefix"`
}

// Admin configures the administration of postrider serve and relay --admin.
type Admin struct {
	// Listen is the address, host:port. Without one, relay serves no administration.
	Listen string `yaml:"listen"`
	// TLSCert and TLSKey are files; TLSProxy says that a proxy in front of the server ends TLS. Other hosts are served only with
	// one of the two.
	TLSCert  string `yaml:"tls_cert"`
	TLSKey   string `yaml:"tls_key"`
	TLSProxy bool   `yaml:"behind_tls_proxy"`
	// Environment is the badge of every page, e.g. Production.
	Environment string `yaml:"environment"`
	// Hosts are the host names that requests may name; none means any, but on loopback addresses only names of this host.
	Hosts []string `yaml:"hosts"`
	// SessionKeyFile has the key of sessions that several processes share: 32 bytes in base64.
	SessionKeyFile string `yaml:"session_key_file"`
	// URL is the address of the overview as browsers see it; OIDC needs it.
	URL string `yaml:"url"`
	// OIDC signs people in at an OpenID provider.
	OIDC OIDC `yaml:"oidc"`
	// Show says what of payloads and headers people see; nothing without it.
	Show []Show `yaml:"show"`
}

// OIDC is an OpenID provider; see signin.Config.
type OIDC struct {
	Issuer   string `yaml:"issuer"`
	ClientID string `yaml:"client_id"`
	// SecretFile has the client's secret.
	SecretFile string   `yaml:"client_secret_file"`
	Name       string   `yaml:"name"`
	Scopes     []string `yaml:"scopes"`
	// RolesClaim is the path of the claim with groups, Roles the roles of its values: viewer, operator or admin.
	RolesClaim string            `yaml:"roles_claim"`
	Roles      map[string]string `yaml:"roles"`
	// SagaRoles are the roles in which values of the claim answer questions of sagas: names that definitions use.
	SagaRoles map[string]string `yaml:"saga_roles"`
	// Viewer "everyone" makes viewers of people without a mapped group; they must have the claims of Allow.
	Viewer string            `yaml:"viewer"`
	Allow  map[string]string `yaml:"allow"`
}

// Show says what is shown of messages of some types; see admin.Rule.
type Show struct {
	Type    string   `yaml:"type"`
	Paths   []string `yaml:"paths"`
	All     bool     `yaml:"all"`
	Hide    []string `yaml:"hide"`
	Headers []string `yaml:"headers"`
	Causes  bool     `yaml:"causes"`
	Keys    string   `yaml:"keys"`
}

// Log configures logging to standard error.
type Log struct {
	Level  Level  `yaml:"level"`
	Format Format `yaml:"format"`
}

// OnDead is what happens to a key whose blocking message is dead-lettered.
type OnDead string

// Allowed lists the values.
func (OnDead) Allowed() []string { return []string{"continue", "hold"} }

// Backoff says how the wait before the next attempt grows: "exponential" doubles and is random, "fixed" is backoff_base.
type Backoff string

// Allowed lists the values.
func (Backoff) Allowed() []string { return []string{"exponential", "fixed"} }

// Start is where a relay that is new to the log begins.
type Start string

// Allowed lists the values.
func (Start) Allowed() []string { return []string{"oldest", "now"} }

// Level is the lowest level that is logged.
type Level string

// Allowed lists the values.
func (Level) Allowed() []string { return []string{"debug", "info", "warn", "error"} }

// Format is the format of log lines.
type Format string

// Allowed lists the values.
func (Format) Allowed() []string { return []string{"text", "json"} }
