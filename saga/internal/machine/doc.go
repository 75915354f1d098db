// Package machine has the rules of orchestrated sagas, as a pure function:
//
//	Definition.Advance(policy, instance, input) → instance, output
//
// It reads no clock, no database and no random source. The engine calls it in the transaction that stores the instance and
// publishes the output; sagatest calls it to explore every order of events. Times are durations since the start of the
// instance.
//
// # Obligations
//
// The transition that sends a command opens an obligation (StepState.Owed). Three things close it: the participant says that
// it refused the step, the participant says that it undid the step, or an operator releases it by name. An instance ends
// compensated only if no obligation is open. A step that did not answer in time is unknown and is undone like one that is
// done; the participant's record (see Record) makes sure that the undo of something that never happened succeeds, and that
// the command, should it arrive later, is refused.
//
// # Position
//
// There is no program counter. What an instance does next is computed from the status of its steps each time: forward, the
// first steps of the sequence that are not finished run; back, the last ones with an open obligation are undone. So an
// operator's change of a status, a late reply and a definition whose timeouts have changed need no special case.
//
// # Failures of the user's functions
//
// A condition or builder that panics makes its step stuck, in the same transition, with the panic as the reason. An operator
// retries it after a fix. A reply or signal that cannot be decoded is an error of Advance: the instance does not change, and
// the message is dead-lettered.
package machine
