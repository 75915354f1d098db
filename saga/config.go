package saga

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Config configures an engine. The zero value of each field means its default. Instances that are running follow a change.
type Config struct {
	// Name identifies the engine: text of 1 to 48 bytes. Its messages have the topic
	// "postrider.saga." followed by this name. Required. Processes with the same Name and database share its instances.
	Name string
	// StepTimeout is how long a request waits for its answer, unless it says otherwise. Default: 30 s.
	StepTimeout time.Duration
	// UndoTimeout is how long an undo waits for its answer, UndoAttempts how often it is sent before its step is stuck.
	// Between attempts there is a backoff. Defaults: 30 s and 20, together about an hour.
	UndoTimeout  time.Duration
	UndoAttempts int
	// StuckAfter is how long a step after the pivot is asked again without an answer, before it is stuck. Default: 1 h.
	StuckAfter time.Duration
	// LocalTimeout ends the context of a local step, LocalAttempts is how often one is tried. Defaults: 5 s and 10.
	LocalTimeout  time.Duration
	LocalAttempts int
	// BackoffBase and BackoffMax limit the wait before attempt n+1, which is random between half of and the whole of
	// min(BackoffMax, BackoffBase·2^(n−1)). Defaults: 1 s and 5 min.
	BackoffBase, BackoffMax time.Duration
	// EarlyFor is how long a signal waits for its instance to be started. Default: 1 min.
	EarlyFor time.Duration
	// MaxSignals is how many signals an instance keeps that came before the step that awaits them. Default: 64.
	MaxSignals int
	// MaxState is the largest size of the data in bytes, and that of the signals that MaxSignals counts, together. A step whose
	// function makes the data larger than before and than this is stuck; of a local step, it is a failed attempt. A signal
	// beyond it is dead-lettered. Default: 256 KiB.
	MaxState int
	// MaxItems is the largest number of items of an Each; more refuse the step. Default: 1,000.
	MaxItems int
	// Grace is how long a process waits after its start before it decides about a timeout of a contract, if the broker of an event
	// cannot say whether everything was read. Default: 1 min.
	Grace time.Duration
	// KeepEnded is how long an instance that completed or was compensated is kept, with its history. Stuck and abandoned ones are
	// always kept. Default: 7 days; negative: forever.
	KeepEnded time.Duration
	// WaitInterval is how often the process asks the database for the instances that callers of Wait are waiting for, with one
	// statement for all of them. Default: 250 ms.
	WaitInterval time.Duration
	// AllowRedefine accepts a definition whose structure is not the one that the database knows for its version, for development. The
	// instances of the other one wait for a process that has it.
	AllowRedefine bool
	// Observer is told what the engine does, for metrics. Default: none.
	Observer *observe.Saga
	// Logger receives the engine's log. Default: slog.Default().
	Logger *slog.Logger
}

// maxName is the largest size of an engine's name.
const maxName = 48

// complete returns a copy with every default filled in, or all errors.
func (c Config) complete() (Config, error) {
	var faults []error
	if err := postrider.Define[any](topicPrefix + c.Name).Validate(); err != nil || c.Name == "" || len(c.Name) > maxName {
		faults = append(faults, fmt.Errorf("saga: an engine's Name must have 1 to %d bytes of text, is %q", maxName, c.Name))
	}
	for _, d := range []struct {
		name         string
		value        *time.Duration
		defaultValue time.Duration
	}{
		{"StepTimeout", &c.StepTimeout, 30 * time.Second}, {"UndoTimeout", &c.UndoTimeout, 30 * time.Second},
		{"StuckAfter", &c.StuckAfter, time.Hour}, {"LocalTimeout", &c.LocalTimeout, 5 * time.Second},
		{"BackoffBase", &c.BackoffBase, time.Second}, {"BackoffMax", &c.BackoffMax, 5 * time.Minute},
		{"EarlyFor", &c.EarlyFor, time.Minute}, {"Grace", &c.Grace, time.Minute}, {"WaitInterval", &c.WaitInterval, 250 * time.Millisecond},
	} {
		if *d.value < 0 {
			faults = append(faults, fmt.Errorf("saga: %s must not be negative, is %s", d.name, *d.value))
		}
		if *d.value > machine.MaxDuration {
			faults = append(faults, fmt.Errorf("saga: %s must be at most %s, is %s", d.name, machine.MaxDuration, *d.value))
		}
		*d.value = cmp.Or(*d.value, d.defaultValue)
	}
	for _, n := range []struct {
		name         string
		value        *int
		defaultValue int
	}{
		{"UndoAttempts", &c.UndoAttempts, 20}, {"LocalAttempts", &c.LocalAttempts, 10}, {"MaxSignals", &c.MaxSignals, 64},
		{"MaxState", &c.MaxState, 256 << 10}, {"MaxItems", &c.MaxItems, 1000},
	} {
		if *n.value < 0 {
			faults = append(faults, fmt.Errorf("saga: %s must not be negative, is %d", n.name, *n.value))
		}
		*n.value = cmp.Or(*n.value, n.defaultValue)
	}
	c.KeepEnded = cmp.Or(c.KeepEnded, 7*24*time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, errors.Join(faults...)
}

// policy is the part of the configuration that transitions use.
func (e *Engine[Tx]) policy() machine.Policy {
	c := &e.cfg
	return machine.Policy{
		StepTimeout: c.StepTimeout, UndoTimeout: c.UndoTimeout, UndoAttempts: c.UndoAttempts, LocalAttempts: c.LocalAttempts,
		StuckAfter: c.StuckAfter, BackoffBase: c.BackoffBase, BackoffMax: c.BackoffMax, MaxSignals: c.MaxSignals,
		MaxState: c.MaxState, MaxItems: c.MaxItems, Check: e.box.Check,
	}
}
