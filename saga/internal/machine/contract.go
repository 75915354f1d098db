package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
)

// Contract is the contract of a choreographed saga, with its types removed. Its instances are Instances too: what a definition
// calls a step is an event here.
type Contract struct {
	Name    string
	Version int
	// Deadline is the longest duration of an instance before its pivot; 0 means none. CancelWithin is how long a completed
	// instance can be cancelled; 0 means not at all.
	Deadline, CancelWithin time.Duration
	// Observe: services undo by themselves. Otherwise the tracker asks them to.
	Observe bool
	// Events are in the order in which they happen.
	Events []*Expected
	// Stored: an engine has reported it, perhaps one from before a rule was made.
	Stored bool
	// OnTimedOut and OnEnded build the messages that report a timeout and the end; nil means none.
	OnTimedOut, OnEnded func(r Report) (*postrider.Message, error)

	hash   string
	byName map[string]*Expected
	roles  map[string]role // by message type
}

// Expected is an event of a contract.
type Expected struct {
	// Name is the type of the event; Service publishes it.
	Name, Service string
	Start, End    bool
	// Optional: nothing waits for it. Pivot: once it has happened, the instance does not turn back.
	Optional, Pivot bool
	// NoUndo: it needs no undo.
	NoUndo bool
	// After are the events that come before it: of each group, at least one.
	After [][]string
	// Within is the time for it, once the events of After have happened; 0 means no limit.
	Within time.Duration
	// Fails are the types of the events that say that it did not happen and will not.
	Fails []string
	// Undo is the message that asks for its undo, Undone the type of the event that confirms it.
	Undo   UndoRequest
	Undone string
	// Each: it happens once for each item. ItemsFrom is the event that Items reads them from; Item returns the item that an
	// event is about, "" if it does not say.
	Each      bool
	ItemsFrom string
	Items     func(m *postrider.Message) ([]string, error)
	Item      func(m *postrider.Message) (string, error)
	// Topics are those of its messages, Invalid says what is wrong with their definitions.
	Topics  []string
	Invalid error
}

// UndoRequest describes the message that asks for an undo.
type UndoRequest struct {
	Type          string `json:"type"`
	Topic         string `json:"topic,omitzero"`
	SchemaVersion int    `json:"-"`
}

// Report says how an instance of a contract stands.
type Report struct {
	Saga    string `json:"saga"`
	Version int    `json:"version"`
	// ID is that of the instance.
	ID     string `json:"id"`
	Status Status `json:"status"`
	Cause  *Cause `json:"cause,omitempty"`
	// Service is who should have published the event that the Cause names, "" if it names none.
	Service string `json:"service,omitzero"`
}

// role is what a message type means in a contract.
type role struct {
	event *Expected
	kind  roleKind
}

type roleKind int

const (
	happened roleKind = iota
	failed
	wasUndone
)

// Event returns the event of a path, nil if there is none.
func (c *Contract) Event(path string) *Expected {
	name, _ := splitItem(path)
	return c.byName[name]
}

// start is the event that all others come after.
func (c *Contract) start() *Expected {
	return c.Events[slices.IndexFunc(c.Events, func(e *Expected) bool { return e.Start })]
}

// Knows says whether a message type is part of the contract.
func (c *Contract) Knows(messageType string) bool {
	_, known := c.roles[messageType]
	return known
}

// Types returns the message types of the contract, sorted.
func (c *Contract) Types() (types []string) {
	for t := range c.roles {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// Topics returns the topics of the contract's messages, sorted.
func (c *Contract) Topics() (topics []string) {
	for _, e := range c.Events {
		topics = append(topics, e.Topics...)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// undoable says whether there is something to undo once the event has happened.
func (c *Contract) undoable(e *Expected) bool {
	return !e.NoUndo && e.Undone != "" && (c.Observe || e.Undo.Type != "")
}

// itemPath is the path of an event about an item.
func itemPath(name, item string) string {
	if item == "" {
		return name
	}
	return name + "[" + item + "]"
}

// splitItem is the inverse of itemPath.
func splitItem(path string) (name, item string) {
	for i := range path {
		if path[i] == '[' && path[len(path)-1] == ']' {
			return path[:i], path[i+1 : len(path)-1]
		}
	}
	return path, ""
}

// ItemOf is the item of an event's path, "" if it has none.
func ItemOf(path string) string {
	_, item := splitItem(path)
	return item
}

// Complete checks the contract. The error lists everything that is wrong.
func (c *Contract) Complete() error {
	k := &contractChecker{c: c}
	c.byName, c.roles = make(map[string]*Expected), make(map[string]role)
	if !nameForm.MatchString(c.Name) {
		k.fault("", "the name %q must have 1 to 48 lower-case letters, digits, dots and hyphens", c.Name)
	}
	if c.Version < 1 {
		k.fault("", "Version is %d, it counts from 1", c.Version)
	}
	for name, d := range map[string]time.Duration{"Deadline": c.Deadline, "CancelWithin": c.CancelWithin} {
		if d < 0 || d > MaxDuration {
			k.fault("", "%s is %s; give a positive duration of at most 50 years, or 0 for none", name, d)
		}
	}
	starts, ends := 0, 0
	for _, e := range c.Events {
		k.event(e)
		starts, ends = starts+count(e.Start), ends+count(e.End)
	}
	if starts != 1 {
		k.fault("", "%d events are marked Start; mark the one that all others come after", starts)
	}
	if ends == 0 {
		k.fault("", "no event is marked End; mark those that complete the saga")
	}
	k.undos()
	if err := errors.Join(k.faults...); err != nil {
		return err
	}
	c.hash = c.computeHash()
	return nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

type contractChecker struct {
	c      *Contract
	faults []error
}

func (k *contractChecker) fault(event, format string, args ...any) {
	where := fmt.Sprintf("contract %s v%d", k.c.Name, k.c.Version)
	if event != "" {
		where += ": event " + event
	}
	k.faults = append(k.faults, fmt.Errorf(where+": "+format, args...))
}

// event checks an event by itself and with those before it.
func (k *contractChecker) event(e *Expected) {
	if e.Invalid != nil {
		k.fault(e.Name, "%w", e.Invalid)
	}
	if e.Service == "" {
		k.fault(e.Name, "Service is empty; name who publishes it, for people")
	}
	k.role(e, e.Name, happened)
	for _, f := range e.Fails {
		k.role(e, f, failed)
	}
	if e.Undone != "" {
		k.role(e, e.Undone, wasUndone)
	}
	if e.Within < 0 || e.Within > MaxDuration {
		k.fault(e.Name, "Within is %s; give a positive duration of at most 50 years, or 0 for none", e.Within)
	}
	switch {
	case e.Start && len(e.After)+len(e.Fails) > 0 || e.Start && (e.Within > 0 || e.Optional):
		k.fault(e.Name, "is the Start: nothing comes before it, it cannot fail, and it is not optional")
	case !e.Start && len(e.After) == 0:
		k.fault(e.Name, "After is empty; name the events that it comes after")
	case e.Optional && (e.Within > 0 || len(e.Fails) > 0 || e.End):
		k.fault(e.Name, "is Optional, so nothing waits for it: it has no Within and no Fails, and is no End")
	}
	k.after(e)
	k.items(e)
	k.c.byName[e.Name] = e
}

func (k *contractChecker) role(e *Expected, messageType string, kind roleKind) {
	if longest := postrider.MaxTypeBytes; messageType == "" || len(messageType) > longest {
		k.fault(e.Name, "the message type %q must have 1 to %d bytes", messageType, longest)
	}
	if other, taken := k.c.roles[messageType]; taken {
		k.fault(e.Name, "%s stands for something else already, at event %s; a message type has one meaning in a contract", messageType, other.event.Name)
	}
	k.c.roles[messageType] = role{e, kind}
}

// after checks what an event comes after: events that stand before it, so that there is no circle.
func (k *contractChecker) after(e *Expected) {
	for _, group := range e.After {
		optional := len(group) > 0
		for _, name := range group {
			before := k.c.byName[name]
			if before == nil {
				k.fault(e.Name, "After names %s, which is not among the events before it; list events in the order in which they happen", name)
				return
			}
			optional = optional && before.Optional
			if before.End && !e.Optional {
				k.fault(e.Name, "comes after %s, which is an End; mark it Optional, or the other not End", name)
			}
		}
		if optional && !e.Optional {
			k.fault(e.Name, "comes after an optional event, which may never happen; mark it Optional too")
		}
	}
}

func (k *contractChecker) items(e *Expected) {
	switch {
	case !e.Each:
	case k.c.byName[e.ItemsFrom] == nil:
		k.fault(e.Name, "its items come from %s, which is not among the events before it", e.ItemsFrom)
	case k.c.byName[e.ItemsFrom].Each:
		k.fault(e.Name, "its items come from %s, which has items itself", e.ItemsFrom)
	case !k.c.Stored && !k.always(e, e.ItemsFrom):
		k.fault(e.Name, "its items come from %s, which need not happen before it; read them from an event that all ways to it have", e.ItemsFrom)
	}
}

// always says whether an event comes after another on every way.
func (k *contractChecker) always(e *Expected, before string) bool {
	return slices.ContainsFunc(e.After, func(group []string) bool {
		return len(group) > 0 && !slices.ContainsFunc(group, func(name string) bool {
			return name != before && (k.c.byName[name] == nil || !k.always(k.c.byName[name], before))
		})
	})
}

// undos checks that whatever can be turned back can be undone, and that the undo is confirmed.
func (k *contractChecker) undos() {
	c, fallible := k.c, k.c.CancelWithin > 0
	for _, e := range slices.Backward(c.Events) {
		asked := c.Observe || e.Undo.Type != ""
		switch {
		case e.NoUndo && (e.Undo.Type != "" || e.Undone != ""):
			k.fault(e.Name, "is marked NoUndo and has Undo or Undone")
		case e.Undo.Type != "" && e.Undone == "":
			k.fault(e.Name, "has Undo and no Undone, the event that confirms it; without it, nobody knows whether it was undone")
		case e.NoUndo || asked && e.Undone != "":
		case e.Pivot:
			k.fault(e.Name, "is a Pivot and its service cannot say that it has not happened; give it Undo and Undone, or NoUndo: then an operator "+
				"decides if the saga turns back while nobody knows")
		case fallible && !e.End, e.Undone != "":
			k.fault(e.Name, "comes before an event that can fail and has no Undo with Undone; give it both, or NoUndo")
		}
		fallible = fallible || e.End && c.Deadline > 0 || e.Within > 0 || len(e.Fails) > 0
	}
}
