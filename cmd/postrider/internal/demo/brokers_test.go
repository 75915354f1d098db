package demo_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/demo"
	"github.com/postrider/postrider/internal/servertest"
)

// TestDemoOnEveryBroker runs a short demo on each of the test servers.
func TestDemoOnEveryBroker(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"NATS", "KAFKA", "RABBITMQ", "REDIS"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := servertest.Get(t, servertest.Name("POSTRIDER_TEST_"+name))
			cfg, out := setup(t)
			cfg.Publisher, cfg.Name = url, "postrider_demo_"+strings.ToLower(rand.Text())
			findings, err := demo.Run(t.Context(), cfg)
			if err != nil || !findings.Held() || findings.Committed == 0 {
				t.Fatalf("findings %+v, error %v\n%s", findings, err, out)
			}
			contains(t, out.String(), "the relay's connection is cut and cannot be made again", "the broker is back", "Every promise was kept.")
		})
	}
}

func TestDemoOnAWebhook(t *testing.T) {
	t.Parallel()
	cfg, out := setup(t)
	cfg.Publisher = demo.InProcess
	findings, err := demo.Run(t.Context(), cfg)
	if err != nil || !findings.Held() || findings.Committed == 0 {
		t.Fatalf("findings %+v, error %v\n%s", findings, err, out)
	}
	contains(t, out.String(), "the receiver is shut down", "Every promise was kept.")
}

func TestDemoRefusesWhatItCannotReadBack(t *testing.T) {
	t.Parallel()
	for url, words := range map[string]string{
		"https://partner.example/hook":            "for a receiver in this process write: --publisher webhook:",
		"pigeon://loft":                           `"pigeon" is no kind of broker`,
		"nats://127.0.0.1:4222?user=u&token=pa55": "give one",
		"amqp://u:pa55%zz@h/":                     "percent-encode what is special",
	} {
		cfg, _ := setup(t)
		cfg.Publisher = url
		if _, err := demo.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s: error %v, want %q", url, err, words)
		}
	}
}
