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
	// done, so that nobody could undo it without the old build.
	ClassUnsafe Class = "unsafe: compensation missing"
)

// Classify says what becomes of an instance of a definition in a build that has definitions of the same saga, and why if it is worse
// than pinned.
func Classify(d *Definition, s *State, build []*Definition) (Class, string) {
	var newest, same, own *Definition
	for _, b := range build {
		if newest == nil || b.Version > newest.Version {
			newest = b
		}
		if b.Version == d.Version {
			if own = b; b.Hash() == d.Hash() {
				same = b
			}
		}
	}
	switch {
	case newest == nil:
		return ClassStops, "the build does not have the saga"
	case same != nil && newest.Version > d.Version:
		return ClassPinned, ""
	case same != nil && !same.equalPolicy(d):
		return ClassPolicy, ""
	case same != nil:
		return ClassSame, ""
	}
	for _, path := range s.Owed() {
		if n := newest.Step(path); n == nil || !n.canUndo() {
			return ClassUnsafe, fmt.Sprintf("version %d has no undo for step %s", newest.Version, path)
		}
	}
	if own != nil {
		return ClassStops, fmt.Sprintf("version %d of the build has another structure: give it a new version", d.Version)
	}
	return ClassStops, fmt.Sprintf("the build does not have version %d", d.Version)
}

// canUndo says whether a step of this definition can be undone.
func (s *Step) canUndo() bool {
	return s.Kind == Request && !s.NoUndo || s.Kind == Local && s.Undoes
}

// equalPolicy says whether timeouts, attempts, roles and topics are the same. The structure is.
func (d *Definition) equalPolicy(o *Definition) bool {
	return d.Deadline == o.Deadline && slices.EqualFunc(d.order, o.order, func(a, b *Step) bool {
		return a.Timeout == b.Timeout && a.Attempts == b.Attempts && a.Topic == b.Topic && slices.Equal(a.Roles, b.Roles)
	})
}
