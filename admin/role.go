package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is what somebody may do. Each role includes the ones before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Roles are all roles, each of which includes the ones before it.
var Roles = []Role{Viewer, Operator, Admin}

// Includes reports whether somebody with this role may do what another role may.
func (r Role) Includes(other Role) bool {
	rank := slices.Index(Roles, r)
	return rank >= 0 && rank >= slices.Index(Roles, other)
}

// Principal is somebody who is signed in.
type Principal struct {
	// Issuer and Subject identify the principal: who vouches for it, and under which name. Name is for display, "" for the Subject.
	Issuer, Subject, Name string
	Role                  Role
	// SagaRoles are the roles in which the principal answers questions of sagas: names that their definitions use (saga.Ask). They are
	// apart from Role, which none of them replaces.
	SagaRoles []string
	// Via says through what the principal acts: one of the constants, or a word of the embedding program.
	Via string
}

// Through what a principal acts.
const (
	ViaBrowser = "browser"
	ViaToken   = "token"
	ViaCLI     = "cli"
	// ViaAgent is MCP. An agent reads and prepares reviews; it changes nothing else, whatever its role.
	ViaAgent = "mcp"
)

// String is the name for display and for the record.
func (p Principal) String() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Subject
}

// Errors of all methods of Service.
var (
	// ErrForbidden: the role is too small. It is a *ForbiddenError.
	ErrForbidden = errors.New("not allowed")
	// ErrInput: what is asked for cannot be understood.
	ErrInput = errors.New("not understood")
	// ErrNotFound: nothing matches what is asked for.
	ErrNotFound = errors.New("not found")
	// ErrReason: an action that needs a reason has none.
	ErrReason = errors.New("give a reason; it is kept on record")
)

// required removes the space around a reason, and returns ErrReason if nothing is left.
func required(reason *string) error {
	if *reason = strings.TrimSpace(*reason); *reason == "" {
		return ErrReason
	}
	return nil
}

// ErrAgent: an agent may not do this; a person does, in the web UI.
var ErrAgent = errors.New("an agent cannot do this; a person does, in the web UI")

// ForbiddenError says which role an action needs: Role or, for a question that names roles, one of SagaRoles. It is an ErrForbidden.
type ForbiddenError struct {
	Action    Action
	Role      Role
	SagaRoles []string
}

// Error is a sentence for people.
func (e *ForbiddenError) Error() string {
	if len(e.SagaRoles) > 0 {
		return fmt.Sprintf("%s needs the saga role %s", e.Action.words(), strings.Join(e.SagaRoles, " or "))
	}
	return fmt.Sprintf("%s needs the %s role", e.Action.words(), e.Role)
}

// Is reports whether target is ErrForbidden.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

func wrongInput(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInput, fmt.Sprintf(format, args...))
}

// Action is something that a principal asks of the Service: the name of its method.
type Action string

// permission is one row of the table of permissions.
type permission struct {
	role Role
	// words name the action in sentences: "… needs the operator role".
	words string
	// reads: the action changes nothing, so only a refusal is recorded.
	reads bool
}

// permissions has each method of Service and each action of Service.Act, and which role it needs.
var permissions = map[Action]permission{
	"Overview":        {Viewer, "Seeing the status", true},
	"Relay":           {Viewer, "Seeing a relay", true},
	"Doctor":          {Viewer, "Seeing the health", true},
	"Find":            {Viewer, "Searching", true},
	"Message":         {Viewer, "Seeing a message", true},
	"Causation":       {Viewer, "Seeing what caused a message", true},
	"Key":             {Viewer, "Seeing a key", true},
	"Causes":          {Viewer, "Seeing dead letters", true},
	"DeadLetters":     {Viewer, "Seeing dead letters", true},
	"DeadLetter":      {Viewer, "Seeing a dead letter", true},
	"HeldKeys":        {Viewer, "Seeing held keys", true},
	"HeldKey":         {Viewer, "Seeing a held key", true},
	"Redrives":        {Viewer, "Seeing redrives", true},
	"Redrive":         {Viewer, "Seeing a redrive", true},
	"Sagas":           {Viewer, "Seeing sagas", true},
	"Saga":            {Viewer, "Seeing a saga", true},
	"SagaOf":          {Viewer, "Seeing a saga", true},
	"SagaQuestions":   {Viewer, "Seeing questions of sagas", true},
	"AnswerSaga":      {Viewer, "Answering this question of a saga", false},
	"Content":         {Operator, "Seeing payloads", true},
	"ShowReview":      {Operator, "Seeing a review", true},
	"Activity":        {Operator, "Seeing the activity", true},
	"Plan":            {Operator, "Planning a redrive", false},
	"StartReview":     {Operator, "Reviewing dead letters", false},
	"ExecuteReview":   {Operator, "Redriving and discarding", false},
	"RedriveDead":     {Operator, "Redriving", false},
	"DiscardDead":     {Operator, "Discarding", false},
	"EditDead":        {Operator, "Editing", false},
	"CancelRedrive":   {Operator, "Cancelling a redrive", false},
	"ContinueRedrive": {Operator, "Continuing a redrive", false},
	"PauseRelay":      {Operator, "Pausing a relay", false},
	"ResumeRelay":     {Operator, "Resuming a relay", false},
	"Decide":          {Operator, "Deciding about held keys and parked messages", false},
	"StartReplay":     {Operator, "Replaying", false},
	"PauseReplay":     {Operator, "Pausing a replay", false},
	"ResumeReplay":    {Operator, "Resuming a replay", false},
	"CancelReplay":    {Operator, "Cancelling a replay", false},
	"SagaPlans":       {Operator, "Planning for sagas", true},
	"OperateSaga":     {Operator, "Deciding about sagas", false},
	"ImportDead":      {Admin, "Importing dead letters", false},
	"PurgeDead":       {Admin, "Purging dead letters", false},
	"Erase":           {Admin, "Erasing messages", false},
	"ResumeErasure":   {Admin, "Resuming an erasure", false},
	"PlaceHold":       {Admin, "Placing a legal hold", false},
	"ReleaseHold":     {Admin, "Releasing a legal hold", false},
	"RemoveRelay":     {Admin, "Removing a relay or consumer", false},
	"Reveal":          {Admin, "Showing hidden values", false},
	"CreateToken":     {Admin, "Granting access", false},
	"RevokeToken":     {Admin, "Revoking access", false},
	"Tokens":          {Admin, "Seeing access tokens", true},
}

func (a Action) words() string { return permissions[a].words }

// May reports whether a role may do something; pages leave out what it may not.
func (r Role) May(a Action) bool {
	needs, ok := permissions[a]
	return ok && r.Includes(needs.role)
}

// agentMay reports whether an agent may do something.
func (a Action) agentMay() bool { return permissions[a].reads || a == "Plan" }

// Needs returns the role that an action needs, "" for an unknown one.
func (a Action) Needs() Role { return permissions[a].role }
