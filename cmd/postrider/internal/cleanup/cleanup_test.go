package cleanup

import (
	"errors"
	"testing"
)

// TestNothingWithoutAPrefix: an empty prefix, with which every name begins, is refused before a broker is asked.
func TestNothingWithoutAPrefix(t *testing.T) {
	t.Parallel()
	if err := Topics(t.Context(), "kafka://127.0.0.1:1", "", ""); !errors.Is(err, errNoPrefix) {
		t.Errorf("topics: %v", err)
	}
	if err := Keys(t.Context(), "redis://127.0.0.1:1", ""); !errors.Is(err, errNoPrefix) {
		t.Errorf("keys: %v", err)
	}
}
