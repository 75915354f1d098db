package plain_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/plain"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		plain.Duration(0, " "):                    "0 s",
		plain.Duration(400*time.Millisecond, " "): "0.4 s",
		plain.Duration(252*time.Second, " "):      "4 min 12 s",
		plain.Duration(74*time.Hour, " "):         "3 d 2 h",
		plain.Grouped(-18402):                     "-18,402",
		plain.Bytes(412):                          "412 B",
		plain.Bytes(1258291):                      "1.2 MiB",
		plain.Bytes(2 << 30):                      "2 GiB",
		plain.Count(1, "message"):                 "1 message",
		plain.Count(18402, "message"):             "18,402 messages",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
