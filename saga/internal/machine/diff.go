package machine

import (
	"fmt"
	"slices"
)

// Class says what becomes of an instance in a build.
type Class string

// The classes, the worst last.
const (
	ClassSame   Class = "same"       // the build has its definition
	ClassPolicy Class = "policy"     // the same, with other timeouts, attempts, roles or topics, which apply to it from then on
	ClassPinned Class = "pinned"     // the build also has a newer version; the instance continues with its own
	ClassStops  Class = "would stop" // the build does not have its definition: it waits for a process that does
	// ClassUnsafe: the build does not have its definition, and its newest version has no undo for something that the instance has
	// done and its own version can undo, or that of another command, so that nobody could undo it without the old build.
	ClassUnsafe Class = "unsafe: compensation missing"
)

// Classify says what becomes of an instance in a build that has definitions, or contracts, of the same saga, and why if it is worse
// than pinned.
func Classify(d Rules, s *State, build []Rules) (Class, string) {
	var newest, same, own Rules
	_, version := d.Identity()
	last := 0 // the version of newest
	for _, b := range build {
		_, v := b.Identity()
		if v > last {
			newest, last = b, v
		}
		if v == version {
			if own = b; b.Hash() == d.Hash() {
				same = b
			}
		}
	}
	switch {
	case newest == nil:
		return ClassStops, "the build does not have the saga"
	case same != nil && last > version:
		return ClassPinned, ""
	case same != nil && !same.equalPolicy(d):
		return ClassPolicy, ""
	case same != nil:
		return ClassSame, ""
	}
	for _, path := range s.Owed() {
		if undo := d.undoOf(path); undo != "" && undo != newest.undoOf(path) {
			return ClassUnsafe, fmt.Sprintf("version %d has no undo for step %s", last, path)
		}
	}
	if own != nil {
		return ClassStops, fmt.Sprintf("version %d of the build has another structure: give it a new version", version)
	}
	why := fmt.Sprintf("the build does not have version %d", version)
	from, isDefinition := d.(*Definition)
	if to, is := newest.(*Definition); is && isDefinition && to.Takes(from, s) == nil {
		why += fmt.Sprintf(", and can migrate it to version %d", last)
	}
	return ClassStops, why
}

// undoOf is by the kinds of the steps on the path, which say how it is reached, and by the message: a participant knows its undo by that of
// the command.
func (d *Definition) undoOf(path string) (undo string) {
	name := StepName(path)
	s := d.Step(name)
	if s == nil || !(s.Kind == Request && !s.NoUndo || s.Kind == Local && s.Undoes || s.Kind == Child) {
		return ""
	}
	for i, c := range name {
		if c != '/' {
			continue
		}
		if above := d.Step(name[:i]); above != nil {
			undo += string(above.Kind)
		}
		undo += "/"
	}
	return undo + string(s.Kind) + " " + s.Message
}

func (d *Definition) equalPolicy(r Rules) bool {
	o, is := r.(*Definition)
	return is && d.Deadline == o.Deadline && slices.EqualFunc(d.order, o.order, func(a, b *Step) bool {
		return a.Timeout == b.Timeout && a.Attempts == b.Attempts && a.Topic == b.Topic && a.Window == b.Window && slices.Equal(a.Roles, b.Roles)
	})
}

func (c *Contract) undoOf(path string) string {
	if e := c.Event(path); e == nil || !c.undoable(e) {
		return ""
	}
	return "request"
}

func (c *Contract) equalPolicy(r Rules) bool {
	o, is := r.(*Contract)
	return is && c.Deadline == o.Deadline && c.CancelWithin == o.CancelWithin && slices.EqualFunc(c.Events, o.Events, func(a, b *Expected) bool {
		return a.Within == b.Within && a.Service == b.Service && a.Undo.Topic == b.Undo.Topic && slices.Equal(a.Topics, b.Topics)
	})
}
