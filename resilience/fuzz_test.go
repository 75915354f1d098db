package resilience_test

import (
	"testing"

	"github.com/postrider/postrider/resilience"
)

// FuzzParse checks that any text is a configuration that New accepts or refuses, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"disabled": true, "operations": {"payment.*": {"timeout": "2s", "retry": {"attempts": 3}}}}`))
	f.Add([]byte(`{"operations": {"a": null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := resilience.Parse(data)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		if set, err := resilience.New(c); err == nil && set == nil {
			t.Error("neither a set nor an error")
		}
	})
}
