package dead_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestDeadEdit(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	edit := func(args ...string) []string {
		return append([]string{"dead", "edit", "2", "--because", "key was wrong", "--store", url}, args...)
	}
	clitest.Contains(t, clitest.OK(t, edit("--payload", `{"key":"x"}`, "--dry-run")...), `- {"key":"order/2"}`, `+ {"key":"x"}`)
	clitest.Fails(t, program.ExitUsage, "Edit dead letter 2? Nobody can answer here", edit("--payload", `{"key":"x"}`)...)
	clitest.Contains(t, clitest.OK(t, edit("--payload", `{"key":"x"}`, "--header", "tenant=acme", "--by", "eva", "--yes")...),
		"+ header tenant: acme", "edited dead letter 2; send it back with: postrider dead redrive 2")
	file := clitest.WriteFile(t, "{\n \"key\": \"y\"\n}")
	r := clitest.Invocation{Stdin: "n\n", Terminal: true, Args: edit("--payload-file", file)}.Run(t)
	clitest.Expect(t, r, program.ExitFailed, "not confirmed; nothing was done")
	clitest.OK(t, edit("--payload-file", file, "--remove-header", "tenant", "--yes")...)

	shown := clitest.OK(t, "dead", "show", "2", "--store", url)
	clitest.Contains(t, shown, "by eva: key was wrong", `- {"key":"order/2"}`, "- header tenant: acme", `+  "key": "y"`)
	var shownJSON struct {
		store.ArchivedDead
		Fingerprint string `json:"fingerprint"`
	}
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "dead", "show", "2", "--json", "--store", url)), &shownJSON))
	if len(shownJSON.Before) != 2 || string(shownJSON.Before[0].Payload) != `{"key":"order/2"}` || shownJSON.Fingerprint == "" {
		t.Errorf("dead letter as JSON: %+v", shownJSON)
	}
	for words, args := range map[string][]string{
		"nothing is to be changed":       edit(),
		"the new payload is not JSON":    edit("--payload", "{"),
		"write name=value":               edit("--header", "x"),
		"has no such header":             edit("--remove-header", "x"),
		"is not the number":              {"dead", "edit", "x", "--payload", "1", "--because", "y", "--store", url},
		"required flag(s) \"because\"":   {"dead", "edit", "2", "--payload", "1", "--store", url},
		"[payload payload-file] are set": edit("--payload", "1", "--payload-file", file),
	} {
		clitest.Fails(t, program.ExitUsage, words, args...)
	}
}

// TestDeadEditOfHeadersLeavesThePayloadAlone: an edit of headers also accepts a payload that does not match its content
// type.
func TestDeadEditOfHeadersLeavesThePayloadAlone(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--content-type", "text/plain", "--payload", `{"key":`)
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	clitest.DeadLetterOne(t, url, "to-nats")
	clitest.OK(t, "dead", "export", "--output", file, "--store", url)
	text, err := os.ReadFile(file)
	clitest.Must(t, err)
	broken := strings.NewReplacer(`"text/plain"`, `"application/json"`, `"payload":"{\"key\":"`, `"payload_base64":"eyJrZXkiOg=="`).Replace(string(text))
	url = clitest.NewOutbox(t)
	clitest.OK(t, "dead", "import", clitest.WriteFile(t, broken), "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "edit", "1", "--header", "tenant=acme", "--because", "x", "--yes", "--store", url), "edited dead letter 1")
	if out := clitest.OK(t, "dead", "show", "1", "--payload", "--store", url); out != `{"key":` {
		t.Errorf("payload %q", out)
	}
	clitest.Fails(t, program.ExitUsage, "the new payload is not JSON", "dead", "edit", "1", "--payload", "{", "--because", "x", "--yes", "--store", url)
}

func TestDeadExportAndImport(t *testing.T) {
	t.Parallel()
	url, other := clitest.WithDead(t), clitest.NewOutbox(t)
	clitest.OK(t, "dead", "redrive", "1", "--store", url)
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	r := clitest.Run(t, "dead", "export", "--state", "any", "--output", file, "--store", url)
	clitest.Expect(t, r, program.ExitDone, "exported 3 dead letters")
	clitest.Fails(t, program.ExitFailed, "file exists", "dead", "export", "--output", file, "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "import", file, "--store", other), "imported 3 dead letters; 0 of the file were there already")
	clitest.Contains(t, clitest.OK(t, "dead", "import", file, "--json", "--store", other), `"new": 0`, `"dead_letters": 3`)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "1", "--store", other), "order/1", "redriven", "by tester")

	piped := clitest.Invocation{Stdin: clitest.OK(t, "dead", "export", "--key", "order/3", "--store", url), Args: []string{"dead", "import", "-", "--store", other}}
	clitest.Contains(t, piped.Run(t).Out, "imported 0 dead letters; 1 of the file were there already")
	text, err := os.ReadFile(file)
	clitest.Must(t, err)
	broken := clitest.WriteFile(t, strings.Replace(string(text), "\n", "\n{\n", 1))
	clitest.Fails(t, program.ExitFailed, "line 2: read a dead letter: ", "dead", "import", broken, "--store", clitest.NewOutbox(t))
	clitest.Fails(t, program.ExitUsage, "no such file", "dead", "import", file+"x", "--store", other)
}

func TestDeadCounts(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	out := clitest.OK(t, "dead", "counts", "--store", url)
	clitest.Contains(t, out, "COUNT", "to-nats", "order.placed", "receiver says no", store.Fingerprint("receiver says no"))
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("counts have %d lines:\n%s", n, out)
	}
	clitest.Contains(t, clitest.OK(t, "dead", "counts", "--json", "--store", url), `"dead_letters":3`)
	clitest.Contains(t, clitest.Run(t, "dead", "counts", "--side", "consumer", "--store", url).Err, "no dead letters match")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--fingerprint", store.Fingerprint("receiver says no"), "--cause", "says", "--store", url), "order/2")
	clitest.Contains(t, clitest.Run(t, "dead", "list", "--cause", "SAYS", "--store", url).Err, "no dead letters match")
	clitest.Fails(t, program.ExitUsage, "--limit must be 1 or more", "dead", "counts", "--limit", "0", "--store", url)
}
