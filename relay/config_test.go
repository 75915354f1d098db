package relay_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := relay.New(b.store, relay.Config{
		Concurrency: -1, LeaseTTL: -1, Topics: []string{""},
		Publisher: unordered{},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"Name", "Concurrency", "LeaseTTL", "Topics", "AcceptUnordered"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %s: %v", part, err)
		}
	}
}

type unordered struct{ publisherFunc }

func (unordered) Capabilities() postrider.Capabilities { return postrider.Capabilities{} }
