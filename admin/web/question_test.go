package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/saga"
)

// asking is a saga that asks two questions, one after the other: the first names roles, the second none.
type asking struct {
	*parcels
	tokens map[string]string
}

// serveAsking has principals by the names of their tokens, with what they are.
func serveAsking(t *testing.T) *asking {
	t.Helper()
	a := &asking{&parcels{}, map[string]string{}}
	a.serve(t, true, saga.Ask[parcel]{
		Name: "release", Question: func(parcel) string { return "Release the parcel of card 4711?" }, Options: []string{"release", "reject"},
		Roles: []string{"finance", "legal"}, Timeout: 48 * time.Hour,
	}, saga.Ask[parcel]{
		Name: "file", Question: func(parcel) string { return "Filed?" }, Options: []string{"yes"}, Timeout: saga.NoTimeout,
	})
	boss := admin.Principal{Subject: "ada", Role: admin.Admin}
	for name, is := range map[string]struct {
		role  admin.Role
		roles []string
	}{
		"admin": {admin.Admin, nil}, "operator": {admin.Operator, nil}, "viewer": {admin.Viewer, nil}, "sales": {admin.Operator, []string{"sales"}},
		"finance": {admin.Viewer, []string{"finance"}}, "legal": {admin.Operator, []string{"sales", "legal"}},
	} {
		token, _, err := a.service.CreateToken(t.Context(), boss, name, is.role, is.roles, admin.UsePeople, time.Hour)
		must(t, err)
		a.tokens[name] = token
	}
	return a
}

// call calls the API as somebody.
func (a *asking) call(as, method, path, body string) (status int, out map[string]any) {
	a.t.Helper()
	r := a.request(method, "/api/v1"+path, body, map[string]string{"Authorization": "Bearer " + a.tokens[as], "Content-Type": "application/json"})
	must(a.t, json.NewDecoder(r.Body).Decode(&out))
	return r.StatusCode, out
}

func answerBody(step, option string, rev int64) string {
	return fmt.Sprintf(`{"step": %q, "option": %q, "rev": %d, "reason": "checked by phone"}`, step, option, rev)
}

// reported says whether the engine has reported its definition, which lists and plans need: an instance asks from its start.
func (a *asking) reported() bool {
	all, err := a.store.SagaDefinitions(a.t.Context())
	must(a.t, err)
	return len(all) > 0
}

// asked waits until an instance asks a question, and returns its revision.
func (a *asking) asked(id, step string) int64 {
	a.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		r, err := a.saga.Get(a.t.Context(), id)
		if err == nil && slices.Contains(r.Waiting, step) && a.reported() {
			return r.Rev
		}
		if time.Since(begun) > 2*time.Minute {
			a.t.Fatalf("instance %s waits for %v, %v; want %s", id, r.Waiting, err, step)
		}
	}
}

// TestAnswerNeedsTheRole: a question that names roles is answered by those who have one, whatever else somebody may do; one without, by
// operators. Who answered in which role is in the history and on record, and so is who was refused.
func TestAnswerNeedsTheRole(t *testing.T) {
	t.Parallel()
	a := serveAsking(t)
	a.start("42")
	rev := a.asked("42", "release")
	for _, as := range []string{"admin", "operator", "viewer", "sales"} {
		status, out := a.call(as, "POST", "/sagas/42/answer", answerBody("release", "release", rev))
		if detail := fmt.Sprint(out["detail"]); status != http.StatusForbidden || !strings.Contains(detail, "finance or legal") {
			t.Errorf("an answer of %s: %d, %v", as, status, out)
		}
	}
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"a revision to come": {answerBody("release", "release", rev+1), 409},
		"no revision":        {answerBody("release", "release", 0), 400}, "no option of it": {answerBody("release", "perhaps", rev), 409},
		"another step": {answerBody("file", "yes", rev), 409}, "no reason": {fmt.Sprintf(`{"step": "release", "option": "release", "rev": %d, "reason": " "}`, rev), 400},
	} {
		if status, out := a.call("finance", "POST", "/sagas/42/answer", tt.body); status != tt.want {
			t.Errorf("%s: %d, %v", name, status, out)
		}
	}
	if status, out := a.call("finance", "POST", "/sagas/none/answer", answerBody("release", "release", rev)); status != http.StatusNotFound {
		t.Errorf("an unknown instance: %d, %v", status, out)
	}
	if status, out := a.call("finance", "POST", "/sagas/42/answer", answerBody("release", "release", rev)); status != http.StatusOK || out["handled"] != true {
		t.Fatalf("the answer of a role: %d, %v", status, out)
	}
	before := rev
	rev = a.asked("42", "file")
	if status, out := a.call("operator", "POST", "/sagas/42/answer", answerBody("file", "yes", before)); status != http.StatusConflict {
		t.Errorf("a stale revision: %d, %v", status, out)
	}
	for as, want := range map[string]int{"viewer": 403, "finance": 403} {
		if status, out := a.call(as, "POST", "/sagas/42/answer", answerBody("file", "yes", rev)); status != want {
			t.Errorf("an answer of %s to a question without roles: %d, %v", as, status, out)
		}
	}
	if status, out := a.call("operator", "POST", "/sagas/42/answer", answerBody("file", "yes", rev)); status != http.StatusOK {
		t.Errorf("the answer of an operator: %d, %v", status, out)
	}
	a.is("42", saga.Completed)
	a.recorded(t)
}

// recorded checks the history of instance 42, and the audit, after TestAnswerNeedsTheRole.
func (a *asking) recorded(t *testing.T) {
	t.Helper()
	in, err := a.service.Saga(t.Context(), admin.Principal{Subject: "ada", Role: admin.Admin}, "42")
	must(t, err)
	history := ""
	for _, h := range in.History {
		for _, e := range h.Entries {
			history += fmt.Sprintf("%s %s %s by %s; ", e.Name, e.Step, e.Text, h.Actor)
		}
	}
	for _, want := range []string{"answer release release by finance", "answer.role release finance by finance", "answer file yes by operator"} {
		if !strings.Contains(history, want) {
			t.Errorf("the history has no %q: %s", want, history)
		}
	}
	if strings.Contains(history, "answer.role file") {
		t.Errorf("a question without roles was answered in one: %s", history)
	}
	entries, _, err := a.service.Activity(t.Context(), admin.Principal{Subject: "ada", Role: admin.Admin}, "", 100)
	must(t, err)
	results := map[string]int{}
	for _, e := range entries {
		if e.Action == "AnswerSaga" {
			results[fmt.Sprintf("%s %s %s", e.By, e.Result, e.Role)]++
			if e.Result == admin.Done && (e.Reason != "checked by phone" || e.Path != "/sagas/42") {
				t.Errorf("on record: %+v", e)
			}
		}
	}
	for who, want := range map[string]int{"finance done finance": 1, "operator done ": 1, "admin refused ": 1, "sales refused ": 1, "viewer refused ": 2, "finance refused finance": 1, "finance refused ": 3, "operator refused ": 2} {
		if results[who] != want {
			t.Errorf("%d times on record: %s, want %d of %v", results[who], who, want, results)
		}
	}
}

// TestTwoAnswer: of two people who answer at once, one is told that it counts and the other that it does not.
func TestTwoAnswer(t *testing.T) {
	t.Parallel()
	a := serveAsking(t)
	for n := range 10 {
		id := fmt.Sprint(n)
		a.start(id)
		rev := a.asked(id, "release")
		var both sync.WaitGroup
		var status [2]int
		for i, as := range []string{"finance", "legal"} {
			both.Go(func() {
				status[i], _ = a.call(as, "POST", "/sagas/"+id+"/answer", answerBody("release", []string{"release", "reject"}[i], rev))
			})
		}
		both.Wait()
		if slices.Sort(status[:]); status != [2]int{http.StatusOK, http.StatusConflict} {
			t.Errorf("two answers at once: %v", status)
		}
		if status, out := a.call("legal", "POST", "/sagas/"+id+"/answer", answerBody("release", "release", rev)); status != http.StatusConflict {
			t.Errorf("an answer afterwards: %d, %v", status, out)
		}
	}
}

// TestQuestionsAreShown: everybody sees that there is a question. Its text, which quotes data, is for those who may answer and for those
// who see causes of all types.
func TestQuestionsAreShown(t *testing.T) {
	t.Parallel()
	a := serveAsking(t)
	for _, id := range []string{"42", "43"} {
		a.start(id)
	}
	rev := a.asked("42", "release")
	a.asked("43", "release")
	if status, out := a.call("legal", "POST", "/sagas/42/answer", answerBody("release", "release", rev)); status != http.StatusOK {
		t.Fatalf("an answer: %d, %v", status, out)
	}
	a.asked("42", "file")
	const release, file = "release Release the parcel of card 4711?", "file Filed?"
	for as, want := range map[string][]string{
		"finance": {"file hidden", release + " may answer"}, "legal": {file + " may answer", release + " may answer"},
		"operator": {file + " may answer", "release hidden"}, "admin": {file + " may answer", "release hidden"}, "viewer": {"file hidden", "release hidden"},
	} {
		status, out := a.call(as, "GET", "/questions?saga=parcels", "")
		if got := described(t, out); status != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s sees %d, %q; want %q", as, status, got, want)
		}
		_, one := a.call(as, "GET", "/sagas/43", "")
		if got := described(t, one); !slices.Equal(got, want[1:]) {
			t.Errorf("%s sees of instance 43 %q, want %q", as, got, want[1:])
		}
	}
	_, first := a.call("viewer", "GET", "/questions?limit=1", "")
	_, second := a.call("viewer", "GET", fmt.Sprintf("/questions?limit=1&after=%v", first["next"]), "")
	if got := append(described(t, first), described(t, second)...); !slices.Equal(got, []string{"file hidden", "release hidden"}) {
		t.Errorf("page by page: %q", got)
	}
	service := admin.New(a.store, admin.Config{Show: []admin.Rule{{Type: "*", Causes: true}}})
	for p, shown := range map[*admin.Principal]bool{{Subject: "olga", Role: admin.Operator}: true, {Subject: "vera", Role: admin.Viewer}: false} {
		list, _, err := service.SagaQuestions(t.Context(), *p, "", "", 10)
		if must(t, err); len(list) != 2 || list[1].Hidden == shown || (list[1].Text != "") != shown || list[1].ID != list[1].Run {
			t.Errorf("%s, who sees causes and no keys: %+v", p.Subject, list)
		}
	}
	agent := admin.Principal{Subject: "assistant", Role: admin.Admin, SagaRoles: []string{"finance"}, Via: admin.ViaAgent}
	list, _, err := a.service.SagaQuestions(t.Context(), agent, "", "", 10)
	if must(t, err); len(list) != 2 || list[1].MayAnswer || !list[1].Hidden {
		t.Errorf("an agent sees %+v", list)
	}
	if _, err := a.service.AnswerSaga(t.Context(), agent, "43", admin.SagaAnswer{Step: "release", Option: "release", Rev: 1, Reason: "x"}); !errors.Is(err, admin.ErrAgent) {
		t.Errorf("an agent answers: %v", err)
	}
}

// described are the questions of an answer, sorted.
func described(t *testing.T, answer map[string]any) (out []string) {
	t.Helper()
	text, err := json.Marshal(answer["questions"])
	must(t, err)
	var list []struct {
		Step, Question string
		Hidden         bool
		MayAnswer      bool `json:"may_answer"`
		Roles, Options []string
	}
	must(t, json.Unmarshal(text, &list))
	for _, q := range list {
		one := strings.TrimSpace(q.Step + " " + q.Question)
		if q.Hidden {
			one += " hidden"
		}
		if q.MayAnswer {
			one += " may answer"
		}
		if len(q.Options) == 0 || (q.Step == "release") != (len(q.Roles) == 2) {
			t.Errorf("question %+v", q)
		}
		out = append(out, one)
	}
	slices.Sort(out)
	return out
}

// TestQuestionPage: the page of an instance offers the options of its question to who may answer, and shows others who may. One click answers;
// the second one is told that the instance moved on. The list of questions leads there.
func TestQuestionPage(t *testing.T) {
	t.Parallel()
	a := serveAsking(t)
	a.start("42")
	a.asked("42", "release")
	as := func(p admin.Principal) {
		a.browser = a.newBrowser()
		if status, _ := a.post("/signin", url.Values{"code": {a.handler.IssueCode(p)}}); status != http.StatusOK {
			t.Fatalf("signing in: %d", status)
		}
	}
	const action, text = `action="/sagas/42/answer"`, "Release the parcel of card 4711?"
	as(admin.Principal{Subject: "ben", Role: admin.Operator, SagaRoles: []string{"sales"}})
	if _, body := a.get("/sagas/42"); strings.Contains(body, action) || strings.Contains(body, text) || !strings.Contains(body, "finance or legal") {
		t.Errorf("the page offers an answer to who may not, or does not say who may:\n%s", body)
	}
	form := url.Values{"step": {"release"}, "option": {"release"}, "rev": {a.rev("42")}, "reason": {"checked by phone"}}
	if status, body := a.post("/sagas/42/answer", form); status != http.StatusForbidden || !strings.Contains(body, "needs the saga role finance or legal") {
		t.Errorf("an answer without the role: %d\n%s", status, body)
	}

	as(admin.Principal{Subject: "eva", Role: admin.Viewer, SagaRoles: []string{"finance"}})
	if _, body := a.get("/sagas?view=asking"); !strings.Contains(body, `href="/sagas/42"`) || !strings.Contains(body, text) || !strings.Contains(body, "You may") {
		t.Errorf("the list does not lead to the question:\n%s", body)
	}
	_, body := a.get("/sagas/42")
	for _, want := range []string{action, text, `name="option" value="release"`, `name="option" value="reject"`, "parcels waits for an answer: release"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %s:\n%s", want, body)
		}
	}
	if strings.Contains(body, "Changing anything needs") {
		t.Error("the page says that nothing can be changed")
	}
	if status, body := a.post("/sagas/42/answer", form); status != http.StatusOK || !strings.Contains(body, "Answered.") && !strings.Contains(body, "Asked for.") {
		t.Errorf("an answer: %d\n%s", status, body)
	}
	a.asked("42", "file")
	if status, body := a.post("/sagas/42/answer", form); status != http.StatusConflict || !strings.Contains(body, "look again") {
		t.Errorf("a second answer: %d\n%s", status, body)
	}
	if _, body := a.get("/sagas/42"); strings.Contains(body, action) || !strings.Contains(body, "release answered as finance") {
		t.Errorf("after the answer:\n%s", body)
	}
}
