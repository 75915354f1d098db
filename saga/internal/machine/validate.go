package machine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

// MaxPathBytes is the largest size of a step's path.
const MaxPathBytes = 200

// MaxDuration is the longest timeout or deadline: sums of several of them stay within a time.Duration.
const MaxDuration = 50 * 365 * 24 * time.Hour

// endPath is the name under which State.Steps records an announcement of the end that could not be built.
const endPath = "end"

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,47}$`)

// Complete sets paths and checks the definition. The error lists everything that is wrong.
func (d *Definition) Complete() error {
	c := &checker{d: d, messages: make(map[string]string)}
	d.byPath, d.order, d.each = make(map[string]*Step), nil, false
	if !nameForm.MatchString(d.Name) {
		c.fault("", "the name %q must have 1 to 48 lower-case letters, digits, dots and hyphens", d.Name)
	}
	if d.Version < 1 {
		c.fault("", "Version is %d, it counts from 1", d.Version)
	}
	if d.Deadline < 0 || d.Deadline > MaxDuration {
		c.fault("", "Deadline is %s; give a positive duration of at most 50 years, or 0 for none", d.Deadline)
	}
	if len(d.Steps) == 0 {
		c.fault("", "there are no steps")
	}
	c.sequence("", d.Steps)
	c.undos(d.Steps, way{})
	if err := errors.Join(c.faults...); err != nil {
		return err
	}
	d.hash = d.computeHash()
	return nil
}

type checker struct {
	d        *Definition
	faults   []error
	parallel int               // how many Parallel and Each steps the present one is in
	each     int               // how many Each steps it is in
	messages map[string]string // the path of the request or await that has a message type
}

func (c *checker) fault(path, format string, args ...any) {
	where := fmt.Sprintf("saga %s v%d", c.d.Name, c.d.Version)
	if path != "" {
		where += ": step " + path
	}
	c.faults = append(c.faults, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

func (c *checker) sequence(parent string, steps []*Step) {
	for _, s := range steps {
		if s == nil {
			c.fault(parent, "a step is nil")
			continue
		}
		s.Path = strings.TrimPrefix(parent+"/"+s.Name, "/")
		c.step(s)
	}
}

// step checks a step and what it contains.
func (c *checker) step(s *Step) {
	if !nameForm.MatchString(s.Name) || s.Path == endPath {
		c.fault(s.Path, "the name %q must have 1 to 48 lower-case letters, digits, dots and hyphens, and must not be %q at the top", s.Name, endPath)
	}
	if longest := len(s.Path) + c.each*(MaxItemBytes+len("[]")); longest > MaxPathBytes {
		c.fault(s.Path, "the path has up to %d bytes with the IDs of items, more than %d", longest, MaxPathBytes)
	}
	if c.d.byPath[s.Path] != nil {
		c.fault(s.Path, "there are several steps of this name")
	}
	c.d.byPath[s.Path] = s
	c.d.order = append(c.d.order, s)
	if s.Pivot && c.parallel > 0 {
		c.fault(s.Path, "a pivot cannot be inside a Parallel or an Each: while it is unknown, nothing else may be undone")
	}
	if s.Timeout < 0 && s.Timeout != NoTimeout || s.Timeout > MaxDuration {
		c.fault(s.Path, "Timeout is %s; give a positive duration of at most 50 years, 0 for the default, or NoTimeout", s.Timeout)
	}
	if s.Attempts < 0 {
		c.fault(s.Path, "Attempts is %d, it must not be negative", s.Attempts)
	}
	if s.Invalid != nil {
		c.fault(s.Path, "%w", s.Invalid)
	}
	switch s.Kind {
	case Request, Await:
		c.message(s)
	case Local:
		c.local(s)
	case Ask:
		c.ask(s)
	case Choose:
		c.choose(s)
	case Parallel:
		c.branches(s)
	case Each:
		c.items(s)
	case Child:
		c.child(s)
	default:
		c.fault(s.Path, "is of the unknown kind %q", s.Kind)
	}
}

// message checks a step that names a message type. The types of signals are unique, since a signal names no step.
func (c *checker) message(s *Step) {
	if longest := postrider.MaxTypeBytes - len(closedSuffix); s.Message == "" || len(s.Message) > longest {
		c.fault(s.Path, "the message type %q must have 1 to %d bytes", s.Message, longest)
	}
	switch {
	case s.Kind == Request && s.Command == nil:
		c.fault(s.Path, "Command is nil: it makes the command from the data")
	case s.Kind == Request && s.Timeout == NoTimeout:
		c.fault(s.Path, "a request needs a timeout, since nobody else says that its answer is missing")
	case s.Kind == Await && s.Timeout == 0:
		c.fault(s.Path, "an Await needs a Timeout; give NoTimeout if it may wait forever")
	}
	if s.Kind == Await {
		if c.each > 0 {
			c.fault(s.Path, "an Await cannot be inside an Each: a signal names no item")
		}
		if other := c.messages[s.Message]; other != "" {
			c.fault(s.Path, "step %s awaits %s too", other, s.Message)
		}
		c.messages[s.Message] = s.Path
	}
}

func (c *checker) local(s *Step) {
	switch {
	case s.Run == nil:
		c.fault(s.Path, "Do is nil: it is what the step does")
	case s.Undoes && s.NoUndo:
		c.fault(s.Path, "has an Undo and is marked NoUndo")
	}
}

func (c *checker) ask(s *Step) {
	if s.Timeout == 0 {
		c.fault(s.Path, "an Ask needs a Timeout; give NoTimeout if it may wait forever")
	}
	if s.Question == nil {
		c.fault(s.Path, "Question is nil: it is what the person is shown")
	}
	if len(s.Options) == 0 || slices.Contains(s.Options, "") {
		c.fault(s.Path, "Options are the answers to choose from; give at least one, and none that is empty")
	}
	if slices.Contains(s.Roles, "") {
		c.fault(s.Path, "a role is empty; without Roles, whoever may operate sagas answers")
	}
}

func (c *checker) choose(s *Step) {
	if len(s.Cases) == 0 {
		c.fault(s.Path, "there are no cases")
	}
	names := make(map[string]bool)
	for i, k := range s.Cases {
		if !nameForm.MatchString(k.Name) || names[k.Name] {
			c.fault(s.Path, "case %d: the name %q must be unique, with 1 to 48 lower-case letters, digits, dots and hyphens", i+1, k.Name)
		}
		names[k.Name] = true
		if k.If == nil && i < len(s.Cases)-1 {
			c.fault(s.Path, "case %s has no If, so the cases after it are never taken; move it to the end", k.Name)
		}
		c.sequence(s.Path+"/"+k.Name, k.Steps)
	}
}

func (c *checker) branches(s *Step) {
	if len(s.Branches) < 2 {
		c.fault(s.Path, "a Parallel needs at least 2 steps, has %d", len(s.Branches))
	}
	c.parallel++
	c.sequence(s.Path, s.Branches)
	c.parallel--
}

func (c *checker) items(s *Step) {
	c.d.each = true
	if s.List == nil {
		c.fault(s.Path, "Items or ID is nil: they list the items")
	}
	if s.Window < 0 {
		c.fault(s.Path, "Window is %d, it must not be negative", s.Window)
	}
	if len(s.Each) == 0 {
		c.fault(s.Path, "there are no steps")
	}
	c.parallel++
	c.each++
	c.sequence(s.Path, s.Each)
	c.parallel--
	c.each--
}

func (c *checker) child(s *Step) {
	if s.Child == nil {
		c.fault(s.Path, "Saga is not a definition")
	}
	if s.ChildData == nil {
		c.fault(s.Path, "Data is nil: it makes the data of the instance to start")
	}
}

// way says which pivots were passed: one for certain, or one perhaps, since a condition or a refusal may leave it out.
type way struct{ certain, perhaps bool }

// undos checks that what can be turned back can be undone, and that no way through the steps has two pivots.
func (c *checker) undos(steps []*Step, w way) way {
	for _, s := range steps {
		if s == nil {
			continue
		}
		switch {
		case s.Kind == Choose:
			w = c.cases(s, w)
			continue
		case s.Kind == Parallel:
			c.undos(s.Branches, w)
			continue
		case s.Kind == Each:
			c.undos(s.Each, w)
			continue
		case s.Pivot && s.Kind != Request && s.Kind != Local && s.Kind != Child:
			c.fault(s.Path, "only a Request, a Local or a Child can be a pivot")
		case s.Kind == Child && s.Child != nil && s.Child.HasPivot() && !s.Pivot && !w.certain:
			c.fault(s.Path, "saga %s has a pivot, so it may be impossible to undo: make this step the pivot, or put it behind the pivot", s.Child.Name)
		case s.Pivot && w.perhaps:
			c.fault(s.Path, "is a second pivot: after the first there is no way back already")
		case s.Kind == Local && !s.Undoes && !s.NoUndo && !s.Pivot && !w.certain:
			c.fault(s.Path, "has no Undo and comes before the pivot, or before one that may be left out; give it one, or mark it NoUndo")
		}
		w.perhaps = w.perhaps || s.Pivot
		w.certain = w.certain || s.Pivot && s.OnlyIf == nil && s.Refused == nil
	}
	return w
}

// cases checks the ways through a Choose.
func (c *checker) cases(s *Step, before way) way {
	after := way{certain: s.OnlyIf == nil && len(s.Cases) > 0 && s.Cases[len(s.Cases)-1].If == nil, perhaps: before.perhaps}
	for _, k := range s.Cases {
		w := c.undos(k.Steps, before)
		after.certain, after.perhaps = after.certain && w.certain, after.perhaps || w.perhaps
	}
	after.certain = after.certain || before.certain
	return after
}
