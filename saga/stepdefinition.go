package saga

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
)

// StepDefinition binds what a participant does to its command, with data of type C, and its reply, of type R, so that sagas and
// participants share one declaration:
//
//	var ReserveStock = saga.DefineStep[StockOrder, Reservation]("stock.reserve").WithTopic("inventory")
//
// A StepDefinition is a value: the With methods return a changed copy.
type StepDefinition[C, R any] struct {
	command postrider.Definition[C]
	reply   postrider.Codec
	noUndo  bool
}

// DefineStep starts the definition of a step whose command has a message type; that of its undo has ".undo" added.
func DefineStep[C, R any](messageType string) StepDefinition[C, R] {
	return StepDefinition[C, R]{command: postrider.Define[C](messageType), reply: postrider.JSON{}}
}

// WithTopic sets the topic of commands and undos. Default: the message type of the command; the undo has the same.
func (s StepDefinition[C, R]) WithTopic(topic string) StepDefinition[C, R] {
	s.command = s.command.WithTopic(topic)
	return s
}

// WithKey sets the function that derives the key of a command, its unit of order, from its data; the undo has the same.
// Default: a key of the saga's instance.
func (s StepDefinition[C, R]) WithKey(key func(C) string) StepDefinition[C, R] {
	s.command = s.command.WithKey(key)
	return s
}

// WithSchemaVersion sets the schema version of the command. Default: 1.
func (s StepDefinition[C, R]) WithSchemaVersion(version int) StepDefinition[C, R] {
	s.command = s.command.WithSchemaVersion(version)
	return s
}

// WithoutUndo marks a step that needs no undo, such as a query or a message to a customer. As a pivot, it is a step that
// cannot be undone. A step without undo that was done stays done when its saga turns back.
func (s StepDefinition[C, R]) WithoutUndo() StepDefinition[C, R] {
	s.noUndo = true
	return s
}

// Type is the message type of the command.
func (s StepDefinition[C, R]) Type() string { return s.command.Type() }

// UndoType is the message type of the undo.
func (s StepDefinition[C, R]) UndoType() string { return machine.UndoType(s.command.Type()) }

// Topic is the topic of commands and undos.
func (s StepDefinition[C, R]) Topic() string { return s.command.Topic() }

// Validate reports every error in the definition.
func (s StepDefinition[C, R]) Validate() error {
	if s.reply == nil {
		return errors.New("define the step with DefineStep")
	}
	if err := s.command.Validate(); err != nil {
		return fmt.Errorf("define step %q: %w", s.command.Type(), err)
	}
	return nil
}
