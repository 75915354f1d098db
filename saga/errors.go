package saga

import "errors"

var (
	// ErrConflict: an instance with this ID exists, or one with this key is running, and it was started with other data.
	ErrConflict = errors.New("an instance exists that was started with other data")
	// ErrPending: the context ended before the instance did. It continues.
	ErrPending = errors.New("the instance has not ended yet")
	// ErrNotFound: there is no instance with this ID.
	ErrNotFound = errors.New("no such instance")
	// ErrDuplicate: a definition of this name and version, or a handler of this step, is registered already.
	ErrDuplicate = errors.New("registered already")
	// ErrRedefined: the database knows a definition with this name and version whose structure is another, see
	// Engine.CheckDefinitions.
	ErrRedefined = errors.New("this version has another structure in the database")
	// ErrHoldKey: a relay or consumer of an engine has OnDead: relay.HoldKey, so that one reply that is dead-lettered would stop
	// the timers of its instance.
	ErrHoldKey = errors.New("OnDead must not be HoldKey for an engine")
	// ErrCannotUndo is returned by an undo handler for a step that cannot be undone any more. Before the pivot, the step is
	// then stuck.
	ErrCannotUndo = errors.New("the step cannot be undone")
)

// Reasons of dead letters.
const (
	// ReasonNotFound: a message is for an instance that does not exist.
	ReasonNotFound = "saga not found"
	// ReasonNotApplicable: a reply, signal or verb that can never be applied to its instance.
	ReasonNotApplicable = "not applicable to the saga"
)
