package relay_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestRelayToAWebhook: a webhook receives signed messages, and its responses can be read.
func TestRelayToAWebhook(t *testing.T) {
	t.Parallel()
	receiver, err := webhook.NewReceiver(webhook.ReceiverConfig{Secrets: []string{webhookSecret}})
	clitest.Must(t, err)
	received := make(chan *postrider.Message, 10)
	var tries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m, err := receiver.Receive(req)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case tries.Add(1) == 1:
			http.Error(w, "not \x1b[31mnow", http.StatusServiceUnavailable)
		default:
			received <- m
			_, _ = w.Write([]byte("thanks"))
		}
	}))
	defer server.Close()

	url := clitest.NewOutbox(t)
	id := clitest.PublishID(t, url, "order/1")
	r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", server.URL+"/hook#plain_http=true&allow=127.0.0.1&secret="+webhookSecret)
	if m := <-received; m.ID != id || m.Key != "order/1" {
		t.Errorf("received %+v", m)
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Contains(t, r.Err.String(), "relay=to-webhook", "publisher=http://127.0.0.1:")
	if strings.Contains(r.Err.String(), "whsec") || strings.Contains(r.Err.String(), "/hook") {
		t.Errorf("the log tells secrets:\n%s", r.Err.String())
	}

	out := clitest.OK(t, "attempts", id, "--store", url)
	clitest.Contains(t, out, "relay to-webhook, attempt 1: retried, answer 503 after", "webhook answered 503", "not ·[31mnow",
		"relay to-webhook, attempt 2: delivered, answer 200 after", "thanks", "request sha256")
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "delivered, or skipped by the topics that the relay took then", "attempts, of 2 the newest", "attempt 2  delivered, answer 200")
	var got struct{ Attempts []postrider.DeliveryAttempt }
	text := clitest.OK(t, "attempts", id, "--store", url, "--json")
	clitest.Contains(t, text, `"took_seconds": 0.`)
	clitest.Lacks(t, text, `"took":`)
	clitest.Must(t, json.Unmarshal([]byte(text), &got))
	if len(got.Attempts) != 2 || got.Attempts[0].Status != 503 || string(got.Attempts[1].Answer) != "thanks" || len(got.Attempts[1].RequestSHA256) != 32 {
		t.Errorf("in JSON: %+v", got)
	}
	if text := clitest.OK(t, "attempts", id, "--store", url, "--json", "--relay", "other"); !strings.Contains(text, `"attempts": []`) {
		t.Errorf("of another relay: %s", text)
	}
	clitest.Fails(t, program.ExitFailed, "no attempts of message other are kept", "attempts", "other", "--store", url)
}

// TestLogNamesTheRelayOnce: log lines of the relay and of the program name the relay, each only once.
func TestLogNamesTheRelayOnce(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer server.Close()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	r := clitest.Start(t, nil, "relay", "--store", url, "--log-format", "json", "--publisher", server.URL+"#plain_http=true&allow=127.0.0.1&secret="+webhookSecret)
	r.Err.Await(t.Context(), t, `"msg":"message is dead"`)
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	for line := range strings.Lines(r.Err.String()) {
		if n := strings.Count(line, `"relay":"to-webhook"`); n != 1 && strings.Contains(line, "relay") {
			t.Errorf("the relay is named %d times: %s", n, line)
		}
	}
}

func TestWebhookIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	for words, publisher := range map[string]string{
		"no secret; make one with: echo whsec_":    "https://h/x",
		"is not encrypted; use https, or set":      "http://h/x#secret=" + webhookSecret,
		`webhook: URL option allow: "office" is`:   "https://h/x#allow=office",
		"did you mean secret?":                     "https://h/x#secrets=x",
		"Authorization into Header instead (autho": "https://u:p@h/x#secret=" + webhookSecret,
	} {
		r := clitest.Run(t, "relay", "--store", url, "--publisher", publisher)
		if r.Code == program.ExitDone || !strings.Contains(r.Err, words) {
			t.Errorf("%s: exit code %d, %s", publisher, r.Code, r.Err)
		}
	}
}
