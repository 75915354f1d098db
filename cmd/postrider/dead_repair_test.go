package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/deadletter"
)

func TestDeadEdit(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	edit := func(args ...string) []string {
		return append([]string{"dead", "edit", "2", "--because", "key was wrong", "--store", url}, args...)
	}
	contains(t, ok(t, edit("--payload", `{"key":"x"}`, "--dry-run")...), `- {"key":"order/2"}`, `+ {"key":"x"}`)
	fails(t, exitUsage, "Edit dead letter 2? Nobody can answer here", edit("--payload", `{"key":"x"}`)...)
	contains(t, ok(t, edit("--payload", `{"key":"x"}`, "--header", "tenant=acme", "--by", "eva", "--yes")...),
		"+ header tenant: acme", "edited dead letter 2; send it back with: postrider dead redrive 2")
	file := writeFile(t, "{\n \"key\": \"y\"\n}")
	r := invocation{stdin: "n\n", terminal: true, args: edit("--payload-file", file)}.run(t)
	expect(t, r, exitFailed, "not confirmed; nothing was done")
	ok(t, edit("--payload-file", file, "--remove-header", "tenant", "--yes")...)

	shown := ok(t, "dead", "show", "2", "--store", url)
	contains(t, shown, "by eva: key was wrong", `- {"key":"order/2"}`, "- header tenant: acme", `+  "key": "y"`)
	var letter struct {
		deadletter.Archived
		Fingerprint string `json:"fingerprint"`
	}
	must(t, json.Unmarshal([]byte(ok(t, "dead", "show", "2", "--json", "--store", url)), &letter))
	if len(letter.Before) != 2 || string(letter.Before[0].Payload) != `{"key":"order/2"}` || letter.Fingerprint == "" {
		t.Errorf("letter as JSON: %+v", letter)
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
		fails(t, exitUsage, words, args...)
	}
}

// TestDeadEditOfHeadersLeavesThePayloadAlone: an edit of headers also accepts a payload that does not match its content
// type.
func TestDeadEditOfHeadersLeavesThePayloadAlone(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	ok(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--content-type", "text/plain", "--payload", `{"key":`)
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	deadLetterOne(t, url, "to-nats")
	ok(t, "dead", "export", "--output", file, "--store", url)
	text, err := os.ReadFile(file)
	must(t, err)
	broken := strings.NewReplacer(`"text/plain"`, `"application/json"`, `"payload":"{\"key\":"`, `"payload_base64":"eyJrZXkiOg=="`).Replace(string(text))
	url = newOutbox(t)
	ok(t, "dead", "import", writeFile(t, broken), "--store", url)
	contains(t, ok(t, "dead", "edit", "1", "--header", "tenant=acme", "--because", "x", "--yes", "--store", url), "edited dead letter 1")
	if out := ok(t, "dead", "show", "1", "--payload", "--store", url); out != `{"key":` {
		t.Errorf("payload %q", out)
	}
	fails(t, exitUsage, "the new payload is not JSON", "dead", "edit", "1", "--payload", "{", "--because", "x", "--yes", "--store", url)
}

func TestDeadExportAndImport(t *testing.T) {
	t.Parallel()
	url, other := withDead(t), newOutbox(t)
	ok(t, "dead", "redrive", "1", "--store", url)
	file := filepath.Join(t.TempDir(), "dead.ndjson")
	r := run(t, "dead", "export", "--state", "any", "--output", file, "--store", url)
	expect(t, r, exitDone, "exported 3 dead letters")
	fails(t, exitFailed, "file exists", "dead", "export", "--output", file, "--store", url)
	contains(t, ok(t, "dead", "import", file, "--store", other), "imported 3 dead letters; 0 of the file were there already")
	contains(t, ok(t, "dead", "import", file, "--json", "--store", other), `"new": 0`, `"letters": 3`)
	contains(t, ok(t, "dead", "show", "1", "--store", other), "order/1", "redriven", "by tester")

	piped := invocation{stdin: ok(t, "dead", "export", "--key", "order/3", "--store", url), args: []string{"dead", "import", "-", "--store", other}}
	contains(t, piped.run(t).out, "imported 0 dead letters; 1 of the file were there already")
	text, err := os.ReadFile(file)
	must(t, err)
	broken := writeFile(t, strings.Replace(string(text), "\n", "\n{\n", 1))
	fails(t, exitFailed, "line 2: read a dead letter: ", "dead", "import", broken, "--store", newOutbox(t))
	fails(t, exitUsage, "no such file", "dead", "import", file+"x", "--store", other)
}

func TestDeadCounts(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	out := ok(t, "dead", "counts", "--store", url)
	contains(t, out, "LETTERS", "to-nats", "order.placed", "receiver says no", deadletter.Fingerprint("receiver says no"))
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("counts have %d lines:\n%s", n, out)
	}
	contains(t, ok(t, "dead", "counts", "--json", "--store", url), `"letters":3`)
	contains(t, run(t, "dead", "counts", "--side", "consumer", "--store", url).err, "no dead letters match")
	contains(t, ok(t, "dead", "list", "--fingerprint", deadletter.Fingerprint("receiver says no"), "--cause", "says", "--store", url), "order/2")
	contains(t, run(t, "dead", "list", "--cause", "SAYS", "--store", url).err, "no dead letters match")
	fails(t, exitUsage, "--limit must be 1 or more", "dead", "counts", "--limit", "0", "--store", url)
}
