package store_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/store"
)

func TestNormalizeCause(t *testing.T) {
	t.Parallel()
	for cause, want := range map[string]string{
		"":                                   "",
		"receiver says no":                   "receiver says no",
		"order 4711 is unknown":              "order # is unknown",
		"order-4711: no such row in case/42": "#: no such row in case/#",
		"order-9: no such row in case/42":    "order-#: no such row in case/#",
		"dial tcp 10.0.0.7:5432: connection refused":                         "dial tcp #.#.#.#:#: connection refused",
		"id 0190f3a7-5b1c-7def-8abc-1234567890ab":                            "id #",
		"commit deadbeefcafe of 12ab":                                        "commit # of #",
		"goroutine 17 [running]:\n\tmain.f(0xc000012345, 0x2a)\n\t\tf.go:12": "goroutine # [running]: main.f(#, #) f.go:#",
		"at 2026-01-31T15:04:05.123Z":                                        "at #:#:#.#Z",
		"no cabbage in utf8, sha256 nor x_1":                                 "no cabbage in utf#, sha# nor x_#",
		"  much   space\t ":                                                  "much space",
		"größer als 7 Äpfel":                                                 "größer als # Äpfel",
		"HTTP 503":                                                           "HTTP 503",
		"order 17: HTTP/1.1 500: total 503 is negative":                      "order #: HTTP/#.# 500: total # is negative",
		"status code: 404, order 404":                                        "status code: 404, order #",
		"http status=429":                                                    "http status=429",
		"webhook answered 502 for order 502":                                 "webhook answered 502 for order #",
		"400 bad request: total -400 is negative":                            "400 bad request: total -# is negative",
		"upstream: 503 Service Unavailable":                                  "upstream: 503 Service Unavailable",
		"exit code 404, status 200, status 4040, http 4a4":                   "exit code #, status #, status #, http #",
	} {
		if got := store.NormalizeCause(cause); got != want {
			t.Errorf("%q:\n got %q\nwant %q", cause, got, want)
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	one, other := store.Fingerprint("order 1: timeout"), store.Fingerprint("order 1: refused")
	if len(one) != 16 || one == other || one != store.Fingerprint("order 2: timeout") {
		t.Errorf("fingerprints %q and %q", one, other)
	}
	if store.Fingerprint("") != "" {
		t.Error("no cause has a fingerprint")
	}
	// Fingerprints are stored, so they must not change.
	if want := "c561cd9c99ce4cc5"; one != want {
		t.Errorf("fingerprint %q, stored ones say %q", one, want)
	}
	// Stores truncate causes at 4,000 bytes, wherever that is.
	long := func(id string) string {
		return ("panic: order " + id + "\n" + strings.Repeat("main.handle(...)\n\t/src/handle.go:12\n", 200))[:4_000]
	}
	if store.Fingerprint(long("1")) != store.Fingerprint(long("123456789")) {
		t.Error("causes that were cut at different places count as two")
	}
}

// TestStatusCodesAreTwoCauses: what a receiver refuses is another cause than what it cannot take now.
func TestStatusCodesAreTwoCauses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"HTTP %d", "order 17: status %d", "webhook answered %d: \"order 17\""} {
		refused, unavailable := store.Fingerprint(fmt.Sprintf(text, 400)), store.Fingerprint(fmt.Sprintf(text, 503))
		if refused == unavailable {
			t.Errorf("%q is one cause, whatever the code", text)
		}
	}
}

// statusCode is what NormalizeCause leaves of digits.
var statusCode = regexp.MustCompile(`\b[45][0-9][0-9]\b`)

func FuzzNormalizeCause(f *testing.F) {
	f.Add("order 4711 is unknown")
	f.Add("HTTP/2 500 500 Internal Server Error")
	f.Add("0x\xff 0190f3a7-5b1c\n")
	f.Fuzz(func(t *testing.T, cause string) {
		once := store.NormalizeCause(cause)
		if twice := store.NormalizeCause(once); twice != once {
			t.Errorf("%q becomes %q, and that %q", cause, once, twice)
		}
		if strings.ContainsAny(statusCode.ReplaceAllString(once, ""), "0123456789\n\t") {
			t.Errorf("%q becomes %q, in which something is left", cause, once)
		}
	})
}

func ExampleFingerprint() {
	fmt.Println(store.Fingerprint("order 17 is unknown") == store.Fingerprint("order 4711 is unknown"))
	// Output: true
}
