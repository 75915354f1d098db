package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
)

// TestSignature uses the example of the Standard Webhooks specification.
func TestSignature(t *testing.T) {
	t.Parallel()
	secrets, err := parseSecrets([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := signatures(secrets, id, timestamp, []byte(body)); got != want {
		t.Errorf("signature is %s, want %s", got, want)
	}
	for header, ok := range map[string]bool{
		want: true, "v1a,xxx " + want: true, want + " v1,AAAA": true,
		"": false, "v1,": false, "v1": false, "v1,AAAA": false, want[3:]: false, "v2," + want[3:]: false,
	} {
		if got := verified(secrets, id, timestamp, []byte(body), header); got != ok {
			t.Errorf("header %q is verified: %v, want %v", header, got, ok)
		}
	}
	if verified(secrets, id+".", timestamp, []byte(body), want) || verified(secrets, id, "1614265331", []byte(body), want) ||
		verified(secrets, id, timestamp, []byte(body+" "), want) {
		t.Error("a changed message is verified")
	}
}

// TestManySignatures: extra signatures in a request must not cost one hash of the body each. If they did, this would
// take minutes.
func TestManySignatures(t *testing.T) {
	t.Parallel()
	secrets, err := parseSecrets([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if verified(secrets, "id", "1", make([]byte, 2<<20), strings.Repeat("v1,AAAA ", 100_000)) {
		t.Error("verified")
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestNothingElseHasTheSameSignature: id and timestamp cannot be split at another dot.
func TestNothingElseHasTheSameSignature(t *testing.T) {
	t.Parallel()
	if got := signedID("order.placed 7%"); got != "order%2Eplaced%207%25" {
		t.Errorf("signed as %s", got)
	}
}

func TestSecretFaults(t *testing.T) {
	t.Parallel()
	short := secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 23))
	_, err := parseSecrets([]string{"AAAA", secretPrefix + "?", short})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("error = %v, want all three faults", err)
	}
	if _, err := parseSecrets(nil); err == nil {
		t.Error("no secret is no error")
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"93.184.215.14": true, "8.8.8.8": true, "2606:4700:4700::1111": true, "172.32.0.1": true, "100.128.0.1": true, "11.0.0.1": true,
		"0.0.0.0": false, "10.0.0.1": false, "127.0.0.1": false, "127.1.2.3": false, "169.254.169.254": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.168.1.1": false, "100.64.0.1": false, "198.18.0.1": false, "224.0.0.1": false,
		"255.255.255.255": false, "::": false, "::1": false, "::127.0.0.1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false,
		"::ffff:0:10.0.0.1": false, "168.63.129.16": false, "4000::1": false, "100:0:0:1::1": false, "5f00::1": false,
		"64:ff9b::8.8.8.8": true, "64:ff9b::169.254.169.254": false, "64:ff9b:1::8.8.8.8": false, "fec0::1": false,
		"2002:a00:1::": false, "2001:0:a00:1::": false, "fc00::1": false, "fd12::1": false, "fe80::1": false, "ff02::1": false,
	} {
		if got := isPublic(meant(netip.MustParseAddr(address))); got != want {
			t.Errorf("%s is public: %v, want %v", address, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	check := guard([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	for address, allowed := range map[string]bool{
		"[64:ff9b::10.1.2.3]:443": true, "[64:ff9b::10.2.2.3]:443": false, "8.8.8.8:443": true, "10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true,
		"10.2.0.1:443": false, "[::1]:80": false, "[fe80::1%eth0]:80": false, "[::ffff:127.0.0.1]:80": false, "localhost:80": false,
	} {
		if err := check("tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed: %v", address, err, allowed)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "0": 0, "7": 7 * time.Second, "999999": maxRetryAfter,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", value, got, want)
		}
	}
}

// TestGatewayOutage: only gateway answers for three keys, and nothing else for a while, mean that the receiver is not there.
func TestGatewayOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r throttle
		for i, step := range []struct {
			wait   time.Duration
			key    string
			status int
			down   bool
		}{
			{0, "a", 502, false}, {0, "b", 503, false}, {0, "c", 504, false}, // all at once, in the middle of a deployment
			{outageAfter, "a", 502, true}, {0, "d", 503, true},
			{0, "e", 200, false},                                                                 // somebody is there
			{0, "a", 502, false}, {outageAfter, "a", 502, false}, {outageAfter, "b", 502, false}, // two keys make it fail
			{0, "c", 502, true},
			{0, "c", 500, false}, // it is the receiver that answers
			{0, "a", 502, false}, {0, "b", 502, false}, {0, "c", 502, false}, {outageAfter - 1, "d", 502, false}, {1, "d", 502, true},
		} {
			time.Sleep(step.wait)
			err := r.judge(&postrider.Message{ID: step.key, Key: step.key}, step.status, errors.New("refused"))
			if down := postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable; down != step.down {
				t.Errorf("step %d, %d for key %s: down: %v, want %v", i, step.status, step.key, down, step.down)
			}
		}
	})
}
