package mcp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// agent is a client of "postrider mcp --demo".
type agent struct {
	t       *testing.T
	session *mcp.ClientSession
}

// ask calls a tool, which must succeed, and decodes its answer.
func (a agent) ask(tool string, arguments map[string]any, into any) string {
	a.t.Helper()
	r, err := a.session.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	clitest.Must(a.t, err)
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError {
		a.t.Fatalf("%s %v: %s", tool, arguments, text)
	}
	if into != nil {
		var answer struct{ Data json.RawMessage }
		clitest.Must(a.t, json.Unmarshal([]byte(text), &answer))
		clitest.Must(a.t, json.Unmarshal(answer.Data, into))
	}
	return text
}

// step has something happen, and returns the IDs of the messages.
func (a agent) step(name string) []string {
	a.t.Helper()
	var done struct {
		IDs []string `json:"message_ids"`
	}
	a.ask("demo", map[string]any{"step": name}, &done)
	return done.IDs
}

var (
	demoLink = regexp.MustCompile(`http://127\.0\.0\.1:\d+/signin\?code=(\S+)`)
	digest   = regexp.MustCompile(`name="digest" value="([^"]+)"`)
)

// approve signs in with the printed link, and carries out a plan on its page.
func approve(t *testing.T, printed, page string) {
	t.Helper()
	link := demoLink.FindStringSubmatch(printed)
	if link == nil {
		t.Fatalf("no link to sign in:\n%s", printed)
	}
	at, err := url.Parse(link[0])
	clitest.Must(t, err)
	jar, err := cookiejar.New(nil)
	clitest.Must(t, err)
	person := &http.Client{Jar: jar}
	body := func(answer *http.Response, err error) string {
		clitest.Must(t, err)
		text, err := io.ReadAll(answer.Body)
		clitest.Must(t, err)
		clitest.Must(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d\n%s", answer.Request.URL, answer.StatusCode, text)
		}
		return string(text)
	}
	body(person.PostForm("http://"+at.Host+"/signin", url.Values{"code": {at.Query().Get("code")}}))
	review := body(person.Get(page))
	clitest.Contains(t, review, "Reason given by the agent", "Redrive 5 dead letters in demo?")
	clitest.Contains(t, body(person.PostForm(page, url.Values{
		"digest": {digest.FindStringSubmatch(review)[1]}, "start": {"first"}, "rate": {"50"}, "stop": {"5"}, "reason": {"approved"},
	})), "Redrive 1")
}

// TestDemo: an agent investigates dead letters on an outbox made for it, from the order that works to the dead letter that is delivered.
func TestDemo(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	clitest.Must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "mcp", "--demo")
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	var printed clitest.Buffer
	cmd.Stderr = &printed
	session, err := mcp.NewClient(&mcp.Implementation{Name: "tester", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	clitest.Must(t, err)
	a := agent{t, session}
	first := a.step("place_orders")
	clitest.Contains(t, a.ask("show_message", map[string]any{"id": first[0]}, nil), `"delivered_or_skipped"`)
	clitest.Contains(t, a.ask("count_dead_letters", nil, nil), `"causes":[],"complete":true`)

	a.step("stop_broker")
	clitest.Contains(t, a.ask("overview", nil, nil), "Destination down", "connection refused")
	a.step("start_broker")

	failed := a.step("break_orders")
	clitest.Contains(t, a.ask("count_dead_letters", nil, nil), "400 bad request: order/# has no currency", `"dead_letters":5`)
	clitest.Contains(t, a.ask("list_dead_letters", nil, nil), failed...)
	clitest.Contains(t, a.ask("show_dead_letter", map[string]any{"number": 1}, nil), "attempts exhausted", `"attempts":2`)
	a.step("correct_orders")
	var plan struct{ Approve string }
	a.ask("plan_redrive", map[string]any{"relay": "to-broker", "reason": "orders have a currency again"}, &plan)
	clitest.Contains(t, a.ask("list_redrives", nil, nil), `"data":[]`)
	approve(t, printed.String(), plan.Approve)
	for begun := time.Now(); !strings.Contains(a.ask("show_redrive", map[string]any{"number": 1}, nil), `"outcome":{"delivered":5,"waiting":0,"failed":0}`); {
		if time.Sleep(100 * time.Millisecond); time.Since(begun) > clitest.Patience {
			t.Fatalf("they are not delivered: %s", a.ask("show_redrive", map[string]any{"number": 1}, nil))
		}
	}
	clitest.Contains(t, a.ask("show_message", map[string]any{"id": failed[4]}, nil), `"state":"delivered"`)
	clitest.Contains(t, a.ask("count_dead_letters", nil, nil), `"causes":[],"complete":true`)
	clitest.Must(t, session.Close())
}

// TestDemoIsAlone: the demo does not touch a store that is given.
func TestDemoIsAlone(t *testing.T) {
	t.Parallel()
	clitest.Fails(t, program.ExitUsage, "--demo has a store", "mcp", "--demo", "--store", clitest.NewOutbox(t))
}
