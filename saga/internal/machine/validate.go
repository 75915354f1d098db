package machine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider"
)

// MaxPathBytes is the largest size of a step's path.
const MaxPathBytes = 200

// endPath is the name under which State.Steps records an announcement of the end that could not be built.
const endPath = "end"

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,47}$`)

// Complete sets paths and checks the definition. The error lists everything that is wrong.
func (d *Definition) Complete() error {
	c := &checker{d: d, messages: make(map[string]string)}
	d.byPath, d.order = make(map[string]*Step), nil
	if !nameForm.MatchString(d.Name) {
		c.fault("", "the name %q must have 1 to 48 lower-case letters, digits, dots and hyphens", d.Name)
	}
	if d.Version < 1 {
		c.fault("", "Version is %d, it counts from 1", d.Version)
	}
	if d.Deadline < 0 {
		c.fault("", "Deadline is %s; give a positive duration, or 0 for none", d.Deadline)
	}
	if len(d.Steps) == 0 {
		c.fault("", "there are no steps")
	}
	c.sequence("", d.Steps)
	c.undos(d.Steps, false)
	if err := errors.Join(c.faults...); err != nil {
		return err
	}
	d.hash = d.computeHash()
	return nil
}

type checker struct {
	d        *Definition
	faults   []error
	parallel int               // how many Parallel steps the present one is in
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
	if len(s.Path) > MaxPathBytes {
		c.fault(s.Path, "the path has %d bytes, more than %d", len(s.Path), MaxPathBytes)
	}
	if c.d.byPath[s.Path] != nil {
		c.fault(s.Path, "there are several steps of this name")
	}
	c.d.byPath[s.Path] = s
	c.d.order = append(c.d.order, s)
	if s.Pivot && c.parallel > 0 {
		c.fault(s.Path, "a pivot cannot be inside a Parallel: while it is unknown, nothing else may be undone")
	}
	if s.Timeout < 0 && s.Timeout != NoTimeout {
		c.fault(s.Path, "Timeout is %s; give a positive duration, 0 for the default, or NoTimeout", s.Timeout)
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

// undos checks that what can be turned back can be undone, and that no way through the steps has two pivots. It returns
// whether a pivot was passed.
func (c *checker) undos(steps []*Step, passed bool) bool {
	for _, s := range steps {
		if s == nil {
			continue
		}
		switch {
		case s.Kind == Choose:
			after := passed
			for _, k := range s.Cases {
				after = c.undos(k.Steps, passed) || after
			}
			passed = after
			continue
		case s.Kind == Parallel:
			c.undos(s.Branches, passed)
			continue
		case s.Pivot && s.Kind != Request && s.Kind != Local:
			c.fault(s.Path, "only a Request or a Local can be a pivot")
		case s.Pivot && passed:
			c.fault(s.Path, "is a second pivot: after the first there is no way back already")
		case s.Kind == Local && !s.Undoes && !s.NoUndo && !s.Pivot && !passed:
			c.fault(s.Path, "has no Undo and comes before the pivot; give it one, or mark it NoUndo")
		}
		passed = passed || s.Pivot
	}
	return passed
}
