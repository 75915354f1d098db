package saga

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
)

// topicPrefix is the beginning of the topic of an engine's messages.
const topicPrefix = "postrider.saga."

// The types of the engine's messages. All of them have the engine's topic and, but for verbs, the key of the instance, so that the inputs of
// an instance stay in order.
const (
	typeReply  = "postrider.saga.reply"
	typeTimer  = "postrider.saga.timer"
	typeLocal  = "postrider.saga.local"
	typeSignal = "postrider.saga.signal"
	typeVerb   = "postrider.saga.verb"
	typeEnded  = "postrider.saga.ended"  // an instance to the one that started it
	typeParent = "postrider.saga.parent" // an instance to one that it started
)

// engineTypes are the types that need no batch of their own.
var engineTypes = []string{typeReply, typeSignal, typeVerb, typeTimer, typeEnded, typeParent}

// The headers of the engine's messages, of commands and undos, and of replies. A reply echoes ID, run, step, token and attempt.
const (
	headerID      = "postrider-saga"         // of the instance
	headerRun     = "postrider-saga-run"     // of the instance
	headerStep    = "postrider-saga-step"    // the path, with a generation from the second on
	headerToken   = "postrider-saga-token"   // a secret of the instance
	headerReply   = "postrider-saga-reply"   // the topic for the reply
	headerKey     = "postrider-saga-key"     // the key for the reply
	headerAttempt = "postrider-saga-attempt" // counts from 1, separately for undos
	headerOutcome = "postrider-saga-outcome" // of a reply
	headerSince   = "postrider-saga-since"   // when the command was first sent, RFC 3339
	headerSeen    = "postrider-saga-seen"    // "1" if the engine has seen the step done
	headerUndo    = "postrider-saga-undo"    // "1" for an undo
	headerTimer   = "postrider-saga-timer"   // the number of a timer
	headerSignal  = "postrider-saga-signal"  // the type of a signal
	headerName    = "postrider-saga-name"    // of the contract
	// headerRecorded is "1" in the replies of a Participant: it has a record of the step.
	headerRecorded = "postrider-saga-recorded"
)

// keyOf is the key of the messages of an instance.
func keyOf(id string) string { return "saga/" + id }

// commandMessage completes the message of a command or undo.
func commandMessage(topic string, in *machine.Instance, c machine.Command, since time.Time) *postrider.Message {
	m := c.Message
	if c.Local {
		m = &postrider.Message{Type: typeLocal, Topic: topic}
	}
	m.Headers = map[string]string{
		headerID: in.ID, headerRun: in.Run, headerStep: c.SentAs, headerAttempt: strconv.Itoa(c.Attempt),
	}
	if c.Undo {
		m.Headers[headerUndo] = "1"
	}
	if c.Contract != "" {
		m.Headers[headerID], m.Headers[headerName] = c.Process, c.Contract
	}
	if c.Local {
		m.Key = keyOf(in.ID)
		return m
	}
	m.Key = cmp.Or(m.Key, keyOf(in.ID))
	m.Headers[headerToken], m.Headers[headerReply], m.Headers[headerKey] = in.State.Token, topic, keyOf(in.ID)
	m.Headers[headerSince] = since.UTC().Format(time.RFC3339)
	if c.Seen {
		m.Headers[headerSeen] = "1"
	}
	return m
}

// closedMessages tell the participants of the steps that were done that the instance has ended, so that they need not keep
// their records for it: one message for all steps of a type. They tell the same to the instances that it started.
func closedMessages(topic string, in *machine.Instance) (msgs []*postrider.Message, err error) {
	told := make(map[string]bool)
	for _, path := range slices.Sorted(maps.Keys(in.State.Steps)) {
		st := in.State.Steps[path]
		if st.Child != "" {
			m, err := wishMessage(topic, st.Child, machine.WishClose, machine.Parent{ID: in.ID, Run: in.Run, Step: st.SentAs})
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, m)
		}
		if st.Status == machine.StepDone && st.Message != "" && !told[st.Message+" "+st.Topic] {
			told[st.Message+" "+st.Topic] = true
			msgs = append(msgs, &postrider.Message{
				Type: machine.ClosedType(st.Message), Topic: st.Topic, Key: cmp.Or(st.Key, keyOf(in.ID)),
				Headers: map[string]string{headerID: in.ID, headerRun: in.Run, headerStep: st.SentAs},
			})
		}
	}
	return msgs, nil
}

// timerMessage is the message that wakes an instance.
func timerMessage(topic string, in *machine.Instance, t *machine.TimerSet) *postrider.Message {
	return &postrider.Message{
		Type: typeTimer, Topic: topic, Key: keyOf(in.ID), DeliverAfter: t.After,
		Headers: map[string]string{headerID: in.ID, headerRun: in.Run, headerTimer: strconv.FormatInt(t.ID, 10)},
	}
}

// signalMessage is a signal for an instance.
func signalMessage[S any](engine, id string, signal postrider.Definition[S], data S) (*postrider.Message, error) {
	m, err := signal.New(data)
	if err != nil {
		return nil, err
	}
	return asSignal(engine, id, m), nil
}

// asSignal makes a message a signal for an instance.
func asSignal(engine, id string, m *postrider.Message) *postrider.Message {
	m.Headers = map[string]string{headerID: id, headerSignal: m.Type}
	m.Type, m.Topic, m.Key = typeSignal, topicPrefix+engine, keyOf(id)
	return m
}

// verbMessage is an operator's verb for an instance.
func verbMessage(engine, id string, v machine.Verb) (*postrider.Message, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// Operators do not wait for the other messages of the instance, which may wait for a broker or for the database.
	key := "verb/" + keyOf(id)
	if v.Kind == machine.VerbMigrate { // nor for other verbs, which may wait for a version that no process has
		key = "migrate/" + keyOf(id)
	}
	return &postrider.Message{
		ID: postrider.NewID(), Type: typeVerb, Topic: topicPrefix + engine, Key: key, Payload: payload, Headers: map[string]string{headerID: id},
	}, nil
}

// replyMessage is the answer to a command or undo.
func replyMessage(command *postrider.Message, outcome machine.Outcome, payload []byte) *postrider.Message {
	headers := make(map[string]string, 7)
	for _, name := range []string{headerID, headerRun, headerStep, headerToken, headerAttempt} {
		headers[name] = command.Headers[name]
	}
	headers[headerOutcome], headers[headerRecorded] = string(outcome), "1"
	return &postrider.Message{
		Type: typeReply, Topic: command.Headers[headerReply], Key: command.Headers[headerKey], Headers: headers, Payload: payload,
	}
}

// readInput reads the input that a message of the engine brings. That of a local step has neither outcome nor data yet, and that of the
// engine itself no token.
func readInput(m *postrider.Message) (in machine.Input, err error) {
	switch m.Type {
	case typeTimer:
		id, err := strconv.ParseInt(m.Headers[headerTimer], 10, 64)
		in.Timer = &machine.Fired{ID: id}
		return in, err
	case typeSignal:
		in.Signal = &machine.Signal{ID: m.ID, Type: m.Headers[headerSignal], Payload: m.Payload}
	case typeVerb:
		in.Verb = &machine.Verb{}
		return in, json.Unmarshal(m.Payload, in.Verb)
	case typeLocal:
		in.Reply = &machine.Reply{SentAs: m.Headers[headerStep]}
	case typeParent:
		var w wished
		err := json.Unmarshal(m.Payload, &w)
		in.Parent = &w.Wish
		return in, err
	case typeReply, typeEnded:
		r := &machine.Reply{
			SentAs: m.Headers[headerStep], Token: m.Headers[headerToken], Outcome: machine.Outcome(m.Headers[headerOutcome]),
			Unrecorded: m.Type == typeReply && m.Headers[headerRecorded] == "",
		}
		r.Attempt, _ = strconv.Atoi(m.Headers[headerAttempt]) // 0 if it does not say
		in.Reply = r
		switch r.Outcome {
		case machine.OutcomeDone, machine.OutcomeCannotUndo:
			r.Payload = m.Payload
		case machine.OutcomeRefused, machine.OutcomeNoRecord:
			return in, json.Unmarshal(m.Payload, &r.Refusal)
		case machine.OutcomeUndone:
		default:
			return in, fmt.Errorf("the outcome %q of the reply is none of done, refused, undone, cannot-undo and no-record", r.Outcome)
		}
	}
	return in, nil
}
