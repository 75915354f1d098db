package machine

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// journey is an instance, and what its participants have done. They keep records, and can do what the definition asks for that the
// instance has.
type journey struct {
	*pair
	d       *Definition
	in      Instance
	age     time.Duration
	flight  []Command
	replies []*Reply
	records map[string]store.SagaStepState
	effects map[string]int
	by      map[string]string // what had the effect, by the name under which the step was sent: see doer
	signals int
}

// clone is a copy, with the instance as it is read from a store.
func (j *journey) clone() *journey {
	c := *j
	text, err := json.Marshal(&j.in)
	token := j.in.State.Token
	c.in = Instance{}
	if err := errors.Join(err, json.Unmarshal(text, &c.in)); err != nil {
		j.Fatal(err)
	}
	c.in.State.Token = token
	c.flight, c.replies = slices.Clone(j.flight), slices.Clone(j.replies)
	c.records, c.effects, c.by = maps.Clone(j.records), maps.Clone(j.effects), maps.Clone(j.by)
	return &c
}

// tell makes a transition. It reports whether the input was accepted.
func (j *journey) tell(input Input) bool {
	j.Helper()
	input.Age = j.age
	in, out, err := j.d.Advance(j.policy, j.in, input)
	if err != nil && !errors.Is(err, ErrInput) {
		j.failf("%v", err)
	}
	if err != nil {
		return false
	}
	j.in, j.flight = in, append(j.flight, out.Commands...)
	return !out.Ignored && out.Refused == ""
}

func (j *journey) says(kind VerbKind, step string) bool {
	j.Helper()
	return j.tell(Input{Verb: &Verb{Kind: kind, Step: step, Option: "yes", Actor: "ann", Reason: "test", Force: kind == VerbCompensate}})
}

// move lets something happen.
func (j *journey) move() {
	j.Helper()
	switch j.random.IntN(16) {
	case 0:
		j.says(VerbCancel, "")
	case 1:
		j.says([]VerbKind{VerbPause, VerbResume}[j.random.IntN(2)], "")
	case 2:
		if stuck := j.in.State.paths(func(st *StepState) bool { return st.Status == StepStuck }); len(stuck) > 0 {
			j.says([]VerbKind{VerbRetry, VerbSkip}[j.random.IntN(2)], stuck[0])
		}
	case 3, 4:
		j.fires()
	case 5, 6:
		j.outside()
	case 7, 8, 9, 10:
		j.answers()
	default:
		j.works()
	}
}

// fires lets time pass until the timer of the instance.
func (j *journey) fires() bool {
	j.Helper()
	timer := j.in.State.Timer
	if timer.At == 0 {
		return false
	}
	j.age = max(j.age, timer.At)
	return j.tell(Input{Timer: &Fired{ID: timer.ID}})
}

// outside answers a question, or sends a signal that a step waits for.
func (j *journey) outside() (told bool) {
	j.Helper()
	for _, s := range j.d.order {
		st := j.in.State.Steps[s.Path]
		switch {
		case st == nil || st.Status != StepWaiting || j.in.State.Back:
		case s.Kind == Ask:
			told = j.says(VerbAnswer, s.Path) || told
		case s.Kind == Await:
			j.signals++
			told = j.tell(Input{Signal: &Signal{ID: string(rune('a' + j.signals)), Type: s.Message, Payload: []byte("{}")}}) || told
		}
	}
	return told
}

// answers delivers an answer.
func (j *journey) answers() bool {
	j.Helper()
	if len(j.replies) == 0 {
		return false
	}
	i := j.random.IntN(len(j.replies))
	r := j.replies[i]
	j.replies = slices.Delete(j.replies, i, i+1)
	j.tell(Input{Reply: r})
	return true
}

// works delivers a command or an undo to a participant that can do it, or runs a local step.
func (j *journey) works() bool {
	j.Helper()
	if len(j.flight) == 0 {
		return false
	}
	i := j.random.IntN(len(j.flight))
	c := j.flight[i]
	if !j.oneIn(8) { // else it comes again
		j.flight = slices.Delete(j.flight, i, i+1)
	}
	handled, undoes := j.handles(c)
	if !handled || c.Local && !j.in.State.Expects(c.SentAs, c.Undo, c.Attempt) {
		return true
	}
	r := &Reply{SentAs: c.SentAs, Token: "token", Outcome: OutcomeUndone}
	switch action := Decide(j.records[c.SentAs], c.Undo, undoes, c.Seen, false); {
	case action == RunDo && j.oneIn(8):
		r.Outcome, j.records[c.SentAs] = OutcomeRefused, store.SagaStepRefused
		if c.Local { // it has no record
			delete(j.records, c.SentAs)
		}
	case action == RunDo:
		r.Outcome, j.records[c.SentAs] = OutcomeDone, store.SagaStepDone
		j.effects[c.SentAs]++
		j.by[c.SentAs] = j.doer(c.Path)
	case action == RunUndo:
		j.records[c.SentAs] = store.SagaStepUndone
		if j.by[c.SentAs] == j.doer(c.Path) {
			j.effects[c.SentAs]--
		}
	case action == Block:
		j.records[c.SentAs] = store.SagaStepBlocked
	case action == Repeat && j.records[c.SentAs] == store.SagaStepDone:
		r.Outcome = OutcomeDone
	case action == Repeat, action == Refuse:
		r.Outcome = OutcomeRefused
	case action == Cannot:
		r.Outcome = OutcomeCannotUndo
	case action == BlockDone, action == NoRecord:
		r.Outcome = OutcomeNoRecord
	}
	if c.Local { // the answer is applied in the same transaction
		j.tell(Input{Reply: r})
		return true
	}
	j.replies = append(j.replies, r)
	return true
}

// handles says whether somebody can do a command or an undo, and has an undo for it: the build of the definition has the participants of its steps.
func (j *journey) handles(c Command) (handled, undoes bool) {
	if c.Message == nil {
		return true, true
	}
	command := strings.TrimSuffix(c.Message.Type, undoSuffix)
	for _, s := range j.d.order {
		if s.Kind == Request && s.Message == command {
			return true, !s.NoUndo
		}
	}
	for _, s := range j.d.For(&State{Steps: j.in.State.Steps}).order {
		if s.Kind == Request && s.Message == command {
			return true, !s.NoUndo
		}
	}
	return false, false
}

// doer is who does a step: the handler of its command, the engine, or another instance.
func (j *journey) doer(path string) string {
	s := j.d.Step(StepName(path))
	return string(s.Kind) + " " + s.Message
}

// ends lets an instance end in a definition, and checks that it ends whole.
func (j *journey) ends(d *Definition) {
	j.Helper()
	j.d = d
	for n := 0; j.in.State.Ended == ""; n++ {
		if n > 3000 {
			j.failf("the instance does not end; it is %s", stateText(&j.in.State))
		}
		if n < 40 && !j.oneIn(4) {
			j.move()
			continue
		}
		if j.in.State.Paused {
			j.says(VerbResume, "")
			continue
		}
		stuck := j.in.State.paths(func(st *StepState) bool { return st.Status == StepStuck })
		switch {
		case len(stuck) > 0 && n%8 == 0:
			j.says(VerbRetry, "")
		case len(stuck) > 0 && n%8 == 4 && n > 200:
			j.says(VerbSkip, stuck[0])
		case j.answers(), j.works(), j.outside(), len(stuck) > 0:
		case !j.fires():
			j.failf("the instance waits for nothing; it is %s", stateText(&j.in.State))
		}
	}
	j.found[string(j.in.State.Ended)]++
	for len(j.flight) > 0 { // what arrives late
		j.works()
	}
	j.whole()
}

// whole checks what the participants have done for an instance that has ended.
func (j *journey) whole() {
	j.Helper()
	state := &j.in.State
	d := j.d.For(state)
	done := make(map[string]int) // by path
	for sentAs, n := range j.effects {
		path, _, _ := strings.Cut(sentAs, "#")
		if done[path] += n; n != 0 && n != 1 || n == 1 && d.Step(path) == nil {
			j.failf("step %s has %d effects at the end, and the version that it ended with has it: %t", sentAs, n, d.Step(path) != nil)
		}
	}
	for path, st := range state.Steps {
		s := d.Step(path)
		if s == nil || s.Kind != Request && s.Kind != Local && s.Kind != Child {
			continue
		}
		want := 0
		if st.Status == StepDone && (state.Ended == Completed || s.NoUndo && !s.Pivot) || st.Status == StepReleased {
			want = 1
		}
		if done[path] != want && st.Status != StepReleased {
			j.failf("the instance ended %s, and step %s, which is %s, has %d effects; it is %s", state.Ended, path, st.Status, done[path], stateText(state))
		}
	}
}

// leftBy turns an instance back in a definition, also past its pivot, and returns the paths of what has stayed of the obligations that it
// had. Everything has happened of which the instance does not know otherwise.
func (j *journey) leftBy(d *Definition) map[string]bool {
	j.Helper()
	j.flight, j.replies = nil, nil
	owed := make(map[string]string)
	for _, path := range j.in.State.Owed() {
		sentAs := j.in.State.Steps[path].SentAs
		j.by[sentAs] = j.doer(path)
		owed[sentAs], j.records[sentAs], j.effects[sentAs] = path, store.SagaStepDone, 1
		if st := j.in.State.Steps[path]; st.Status == StepUndoing { // that one is lost
			st.Due = j.age + 1
		}
	}
	j.d = d
	if j.in.State.Back {
		j.in.State.Forced = true
		if !j.in.State.Paused {
			j.says(VerbPause, "")
		}
		j.says(VerbResume, "")
	} else {
		j.says(VerbCompensate, "")
		j.says(VerbResume, "")
	}
	retried := make(map[string]bool)
	again := func(path string) bool {
		if retried[path] {
			return j.says(VerbSkip, path)
		}
		retried[path] = true
		return j.says(VerbRetry, path)
	}
	for n := 0; j.in.State.Ended == "" && n < 2000; n++ {
		switch stuck := j.in.State.paths(func(st *StepState) bool { return st.Status == StepStuck && st.Owed }); {
		case j.answers(), j.works():
		case len(stuck) > 0 && slices.ContainsFunc(stuck, again):
		case j.fires():
		default:
			n = 2000
		}
	}
	left := make(map[string]bool)
	for sentAs, path := range owed {
		if j.effects[sentAs] > 0 {
			left[path] = true
		}
	}
	return left
}
