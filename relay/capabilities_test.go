package relay

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// promising is a publisher that has capabilities and nothing else.
type promising postrider.Capabilities

func (p promising) Publish(context.Context, []*postrider.Message) []error { return nil }
func (p promising) Capabilities() postrider.Capabilities                  { return postrider.Capabilities(p) }

// TestNeeds: a relay does not start with less than it needs, and names the remedy.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		needs    Config
		promises promising
		words    []string // of the refusal; none expected if empty
	}{
		"nothing needed":    {Config{}, promising{Ordered: true}, nil},
		"order":             {Config{}, promising{}, []string{"keep the order of a key", "or set AcceptUnordered"}},
		"order not needed":  {Config{AcceptUnordered: true}, promising{}, nil},
		"dedupe":            {Config{RequireDedupe: time.Hour}, promising{Ordered: true, DedupeWindow: time.Hour}, nil},
		"no dedupe":         {Config{RequireDedupe: time.Hour}, promising{Ordered: true}, []string{"drops no duplicates", "NATS JetStream"}},
		"too little dedupe": {Config{RequireDedupe: time.Hour}, promising{Ordered: true, DedupeWindow: time.Minute}, []string{"for 1m0s only", "dedupe_window"}},
		"size":              {Config{RequireMessageBytes: 9}, promising{Ordered: true, MaxMessageBytes: 9}, nil},
		"size not known":    {Config{RequireMessageBytes: 9}, promising{Ordered: true}, nil},
		"too small":         {Config{RequireMessageBytes: 9}, promising{Ordered: true, MaxMessageBytes: 8}, []string{"8 bytes at most", "raise its limit"}},
		"everything at once": {Config{RequireMessageBytes: 9, RequireDedupe: 1}, promising{MaxMessageBytes: 8},
			[]string{"AcceptUnordered", "RequireDedupe", "RequireMessageBytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.needs.Name, tt.needs.Publisher = "r", tt.promises
			_, err := tt.needs.complete()
			if (err != nil) != (tt.words != nil) {
				t.Fatalf("refused with %v, want words %q", err, tt.words)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}
