package publish_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/publish"
)

func TestPublishOne(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	id := strings.TrimSpace(clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--key", "order/1",
		"--tenant", "acme", "-H", "a=b=c", "--payload", `{"n":1}`, "--source", "shop", "--schema-version", "2"))
	m := clitest.Published(t, url)[0]
	if m.ID != id || m.Topic != "orders" || m.Key != "order/1" || m.Tenant != "acme" || m.Headers["a"] != "b=c" ||
		string(m.Payload) != `{"n":1}` || m.Source != "shop" || m.SchemaVersion != 2 {
		t.Errorf("published %+v", m)
	}
	file := clitest.WriteFile(t, "\x00\x01")
	clitest.OK(t, "publish", "-q", "--store", url, "--type", "blob", "--content-type", "application/octet-stream", "--payload-file", file)
	if got := clitest.Published(t, url); len(got) != 1 || string(got[0].Payload) != "\x00\x01" {
		t.Errorf("published %+v", got)
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	for words, args := range map[string][]string{
		"--type is missing":                                              {"--key", "k"},
		"--header nonsense is not name=value":                            {"--type", "t", "-H", "nonsense"},
		"--deliver-at soon is not a time":                                {"--type", "t", "--deliver-at", "soon"},
		"the payload is not JSON, and the content type application/json": {"--type", "t", "--payload", "not json"},
		"the content type application/cloudevents+json; charset":         {"--type", "t", "--payload", "x", "--content-type", "application/cloudevents+json; charset=utf-8"},
		"the payload is not JSON":                                        {"--type", "t", "--payload", ""},
		"the payload is not JSON, and the content":                       {"--type", "t", "--payload-file", clitest.WriteFile(t, "{\"a\":")},
		"(--content-type, in a line":                                     {"--type", "t", "--payload-file", "-"},
		"--aggregate-version counts from 1, is 0":                        {"--type", "t", "--aggregate-version", "0"},
		"--deliver-after must not be negative, is -5m0s":                 {"--type", "t", "--deliver-after", "-5m"},
		"nothing was published: ":                                        {"--type", strings.Repeat("t", 5000)},
		"--from-line 99 is past the end: there are 2 lines":              {"--file", clitest.WriteFile(t, `{"type":"t"}`+"\n"+`{"type":"t"}`+"\n"), "--from-line", "99"},
		"--batch goes with --file":                                       {"--type", "t", "--batch", "3"},
		"--key describes a single message":                               {"--file", "-", "--key", "k"},
		"--continue-on-error and --rejects go":                           {"--file", "-", "--continue-on-error"},
		"--batch must be 1 to 10000":                                     {"--file", "-", "--batch", "0"},
		"--from-line counts from 1":                                      {"--file", "-", "--from-line", "0"},
		"if any flags in the group [payload paylo":                       {"--type", "t", "--payload", "x", "--payload-file", "y"},
	} {
		clitest.Fails(t, program.ExitUsage, words, append([]string{"publish", "--store", url}, args...)...)
	}
	clitest.Fails(t, program.ExitUsage, "nothing was published", "publish", "--store", url, "--type", "t", "--key", strings.Repeat("k", 257))
}

// TestPublishOfWhatIsNoJSON: another content type allows any payload, and a message may have none.
func TestPublishOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.OK(t, "publish", "--store", url, "--type", "t", "--content-type", "text/plain", "--payload", "not json")
	clitest.Expect(t, clitest.Run(t, "publish", "--store", url, "--type", "t"), program.ExitDone, "no payload is given: a handler that reads JSON cannot decode this message")
	line := `{"type":"t","content_type":"text/plain","payload":"not json"}` + "\n" + `{"type":"t"}`
	clitest.OK(t, "publish", "--store", url, "--file", clitest.WriteFile(t, line))
	if got := clitest.Published(t, url); len(got) != 4 {
		t.Errorf("%d messages are published", len(got))
	}
}

// lines returns n messages, one per line.
func lines(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"id":"m%d","type":"t","key":"k","payload":{"n":%d}}`, i+1, i+1)
	}
	return out
}

func TestPublishFileInBatches(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	text := strings.Join(lines(10), "\n") // no newline at the end
	r := clitest.Invocation{Stdin: text + "\n\n", Terminal: true, Args: []string{"publish", "--store", url, "--file", "-", "--batch", "3"}}.Run(t)
	clitest.Expect(t, r, program.ExitDone, "published 10 messages")
	if r.Out != "m1\nm2\nm3\nm4\nm5\nm6\nm7\nm8\nm9\nm10\n" {
		t.Errorf("IDs %q", r.Out)
	}
	clitest.OK(t, "publish", "--store", url, "-q", "--file", clitest.WriteFile(t, text), "--from-line", "9")
	got := clitest.Published(t, url)
	if len(got) != 12 || got[9].ID != "m10" || got[10].ID != "m9" || string(got[0].Payload) != `{"n":1}` {
		t.Errorf("published %d messages", len(got))
	}
}

func TestPublishFileStopsAtABadLineAndKeepsItsBatchOut(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"not JSON":           `{"type":`,
		"unknown field":      `{"type":"t","kye":"k"}`,
		"no payload in JSON": `{"type":"t","payload_base64":"bm90IGpzb24="}`,
		"two values":         `{"type":"t"} {"type":"t"}`,
		"no type":            `{"key":"k"}`,
		"too long":           `{"type":"t","payload":"` + strings.Repeat("x", publish.MaxLine) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := clitest.NewOutbox(t)
			text := lines(10)
			text[7] = bad
			file := clitest.WriteFile(t, strings.Join(text, "\n")+"\n")
			r := clitest.Run(t, "publish", "--store", url, "--file", file, "--batch", "3")
			clitest.Expect(t, r, program.ExitFailed, "line 8: ")
			clitest.Expect(t, r, program.ExitFailed, "published 6 messages")
			clitest.Expect(t, r, program.ExitFailed, "go on with --from-line 7")
			if got := clitest.Published(t, url); len(got) != 6 {
				t.Errorf("%d messages are published", len(got))
			}
			text[7] = lines(10)[7]
			file = clitest.WriteFile(t, strings.Join(text, "\n")+"\n")
			clitest.OK(t, "publish", "--store", url, "--file", file, "--from-line", "7")
			if got := clitest.Published(t, url); len(got) != 4 || got[0].ID != "m7" || got[3].ID != "m10" {
				t.Errorf("%d messages were published by the second run", len(got))
			}
		})
	}
}

func TestPublishFileContinuesAndKeepsTheRejects(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	text := lines(10)
	text[1], text[4], text[9] = "nonsense", `{"key":"k"}`, `{"type":"t","kye":1}`
	rejects := filepath.Join(t.TempDir(), "rejects")
	args := []string{"publish", "--store", url, "--file", "-", "--batch", "4", "--continue-on-error", "--rejects", rejects}
	r := clitest.Invocation{Stdin: strings.Join(text, "\n"), Args: args}.Run(t)
	clitest.Expect(t, r, program.ExitPartly, "published 7 messages")
	clitest.Expect(t, r, program.ExitPartly, "rejected 3 lines to "+rejects)
	clitest.Expect(t, r, program.ExitPartly, "line 5 rejected: type")
	kept, err := os.ReadFile(rejects)
	clitest.Must(t, err)
	want := []string{text[1], text[4], text[9], ""}
	got := strings.Split(string(kept), "\n")
	if !sameLines(got, want) {
		t.Errorf("rejects %q, want %q", got, want)
	}
	if got := clitest.Published(t, url); len(got) != 7 {
		t.Errorf("%d messages are published", len(got))
	}
	r = clitest.Invocation{Stdin: strings.Join(text, "\n"), Args: args}.Run(t)
	clitest.Expect(t, r, program.ExitFailed, "file exists")
}

// sameLines compares without order: lines that are not JSON are rejected before those of the batch around them.
func sameLines(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestPublishedMessagesCanBeReadBack(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	text, err := json.Marshal(clitest.Published(t, url)[0])
	clitest.Must(t, err)
	if m, err := publish.DecodeMessage(text); err != nil || m.Key != "order/1" || string(m.Payload) != `{"key":"order/1"}` {
		t.Errorf("%s is read back as %+v, %v", text, m, err)
	}
}
