package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/servertest"
)

// commandVariable has this program be the command.
const commandVariable = "POSTRIDER_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		os.Exit(cli.Run(context.Background(), &program.Program{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Signals: make(chan os.Signal), Exit: os.Exit,
		}, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// seen is what a client has seen.
type seen struct {
	Server  string   `json:"server"`
	Tools   []string `json:"tools"`
	Answers []answer `json:"answers"`
}

type answer struct {
	Failed bool   `json:"failed"`
	Text   string `json:"text"`
}

// call is a tool and its arguments.
type call [2]any

// client calls tools of a server: a command line, or an address to which it sends a token.
type client func(t *testing.T, command []string, address, token string, calls []call) seen

// programOf is a client in another language.
func programOf(name ...string) client {
	return func(t *testing.T, command []string, address, token string, calls []call) (out seen) {
		t.Helper()
		target := address
		if target == "" {
			text, err := json.Marshal(command)
			clitest.Must(t, err)
			target = string(text)
		}
		asked, err := json.Marshal(calls)
		clitest.Must(t, err)
		cmd := exec.CommandContext(t.Context(), name[0], append(slices.Clone(name[1:]), target, string(asked))...)
		cmd.Env = append(os.Environ(), commandVariable+"=1", "TOKEN="+token)
		var errors strings.Builder
		cmd.Stderr = &errors
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, errors.String())
		}
		clitest.Must(t, json.Unmarshal(text, &out))
		return out
	}
}

// bearer sends an access token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// inGo is the client of the SDK for Go.
func inGo(t *testing.T, command []string, address, token string, calls []call) (out seen) {
	t.Helper()
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1}
	if address == "" {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = append(os.Environ(), commandVariable+"=1")
		transport = &mcp.CommandTransport{Command: cmd}
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "tester", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	clitest.Must(t, err)
	defer session.Close()
	out.Server = session.InitializeResult().ServerInfo.Name
	for tool, err := range session.Tools(t.Context(), nil) {
		clitest.Must(t, err)
		out.Tools = append(out.Tools, tool.Name)
	}
	slices.Sort(out.Tools)
	for _, c := range calls {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: c[0].(string), Arguments: c[1]})
		clitest.Must(t, err)
		out.Answers = append(out.Answers, answer{r.IsError, r.Content[0].(*mcp.TextContent).Text})
	}
	return out
}

// TestClients: the clients of three SDKs find out the same about dead letters, over both transports, and plan a redrive, which stays a
// plan.
func TestClients(t *testing.T) {
	t.Parallel()
	store := clitest.WithDead(t)
	serve := clitest.Start(t, nil, "serve", "--store", store, "--listen", "127.0.0.1:0", "--print-code")
	address := fmt.Sprintf("http://%s/mcp", <-serve.Address)
	token := strings.TrimSpace(clitest.OK(t, "token", "create", "--store", store, "--name", "assistant", "--agent", "--role", "operator"))
	self, err := os.Executable()
	clitest.Must(t, err)
	command := []string{self, "mcp", "--store", store, "--role", "operator"}
	calls := []call{
		{"count_dead_letters", map[string]any{}}, {"list_dead_letters", map[string]any{"limit": 2}}, {"show_dead_letter", map[string]any{"number": "1"}},
		{"run_doctor", map[string]any{"check": "no.such"}}, {"plan_redrive", map[string]any{"reason": "the receiver answers again"}},
	}
	home := servertest.Get(t, servertest.Clients)
	want := inGo(t, command, "", "", calls[:4])
	for i, failed := range []bool{false, false, false, true} {
		if want.Answers[i].Failed != failed {
			t.Errorf("call %d: %s", i, want.Answers[i].Text)
		}
	}
	for name, c := range map[string]client{
		"go": inGo, "python": programOf(filepath.Join(home, "python", "bin", "python"), "testdata/client.py"), "typescript": programOf("node", filepath.Join(home, "npm", "client.mjs")),
	} {
		for transport, at := range map[string]string{"standard input": "", "HTTP": address} {
			got := c(t, command, at, token, calls)
			plan := got.Answers[len(calls)-1]
			got.Answers = got.Answers[:len(calls)-1]
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s over %s has seen\n%+v, not\n%+v", name, transport, got, want)
			}
			if plan.Failed || !strings.Contains(plan.Text, `"included":3`) || !strings.Contains(plan.Text, `"via":"mcp"`) {
				t.Errorf("%s over %s: the plan is %s", name, transport, plan.Text)
			}
		}
	}
	if audit := clitest.OK(t, "audit", "--store", store, "--json"); strings.Count(audit, `"Plan"`) != 6 || strings.Contains(audit, "ExecuteReview") {
		t.Errorf("on record is\n%s", audit)
	}
	serve.End(t)
}
