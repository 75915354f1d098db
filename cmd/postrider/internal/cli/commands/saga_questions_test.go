package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/saga"
)

// TestQuestions: open questions are listed with who may answer them in the administration. The command answers without a role, and the
// audit says who did.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	clitest.Contains(t, clitest.Run(t, "saga", "questions", "--store", s.url).Err, "no instance asks anything")
	for _, id := range []string{"41", "42"} {
		s.start(id)
		s.ok("done", id, "--step", "review")
		s.is(id, saga.Running, "release")
	}
	clitest.Contains(t, clitest.OK(t, "saga", "questions", "--store", s.url), "UNTIL", "41 ", "42 ", "release", "Release it?", "yes, no", "warehouse")
	first := clitest.Run(t, "saga", "questions", "--limit", "1", "--json", "--saga", "parcels", "--store", s.url)
	clitest.Contains(t, first.Err, "go on with --after ")
	var q saga.Question
	clitest.Must(t, json.Unmarshal([]byte(first.Out), &q))
	if q.ID != "41" || q.Rev != 2 || q.Step != "release" || q.Text != "Release it?" || q.Since.IsZero() || !q.Deadline.IsZero() {
		t.Errorf("question %+v", q)
	}
	second := clitest.OK(t, "saga", "questions", "--after", q.Run, "--store", s.url)
	clitest.Contains(t, second, "42 ")
	clitest.Lacks(t, second, "41 ")

	s.ok("answer", "42", "--step", "release", "--option", "yes")
	s.is("42", saga.Running, "ship")
	clitest.Lacks(t, clitest.OK(t, "saga", "questions", "--limit", "0", "--store", s.url), "42 ")
	clitest.Contains(t, clitest.OK(t, "audit", "--json", "--store", s.url), `"AnswerSaga"`, "release of saga 42: yes", `"by":"ann"`)
	clitest.Fails(t, program.ExitFailed, "the question is closed", "saga", "answer", "42", "--step", "release", "--option", "no", "--because", "test", "--store", s.url)
	clitest.Fails(t, program.ExitUsage, "there is no such run", "saga", "questions", "--after", "zzz", "--store", s.url)
	clitest.Fails(t, program.ExitUsage, "--limit must not be negative", "saga", "questions", "--limit", "-1", "--store", s.url)
	clitest.Fails(t, program.ExitFailed, "no saga has the name nosuch", "saga", "questions", "--saga", "nosuch", "--store", s.url)
}
