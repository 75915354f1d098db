package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/mcpserver"
)

// TestBrokenInput (scenario D19): after frames that are no messages, a line of 10 MiB, or input that ends within a message, the server ends, and
// its output has nothing but messages of the protocol.
func TestBrokenInput(t *testing.T) {
	t.Parallel()
	service, reads := withDead(t, 1)
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
	for name, input := range map[string]string{
		"no JSON": begin + "GET / HTTP/1.1\r\n\r\n", "half a message": begin + `{"jsonrpc":"2.0","id":2,`, "nothing": "", "an empty line": begin + "\n",
		"binary": begin + "\x00\xff\xfe\n", "no method": begin + `{"jsonrpc":"2.0","id":2}` + "\n", "an array": begin + "[]\n", "no object": begin + "42\n",
		"10 MiB": begin + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + strings.Repeat("x", 10<<20) + `"}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := mcpserver.New(service, reads, "", "v1").Serve(t.Context(), admin.Principal{Subject: "anna", Role: admin.Viewer}, strings.NewReader(input), &out)
			t.Logf("ends with %v", err)
			for line := range strings.Lines(out.String()) {
				var message struct{ JSONRPC string }
				if err := json.Unmarshal([]byte(line), &message); err != nil || message.JSONRPC != "2.0" {
					t.Errorf("output has %.100q", line)
				}
			}
		})
	}
}
