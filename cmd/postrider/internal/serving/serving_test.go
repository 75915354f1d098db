package serving_test

import (
	"errors"
	"path"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/serving"
	"github.com/postrider/postrider/config"
)

// TestMalformedRules: a server does not start with a pattern that would never match.
func TestMalformedRules(t *testing.T) {
	t.Parallel()
	o := serving.Options{Admin: config.Admin{Listen: "127.0.0.1:0", Show: []config.Show{{Type: "order.*"}}}}
	if err := o.Check(); err != nil {
		t.Errorf("a good rule: %v", err)
	}
	o.Admin.Show = append(o.Admin.Show, config.Show{Type: "card.["})
	if err := o.Check(); !errors.Is(err, path.ErrBadPattern) {
		t.Errorf("a malformed rule: %v", err)
	}
}
