package backend

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/config"
)

// TestOptionsAreThoseOfTheAdapters: the adapters accept the same options as the configuration.
func TestOptionsAreThoseOfTheAdapters(t *testing.T) {
	t.Parallel()
	if len(adapters) != len(config.Brokers) {
		t.Errorf("%d adapters for %d kinds of brokers", len(adapters), len(config.Brokers))
	}
	for _, b := range config.Brokers {
		rest, _ := b.OptionsIn(b.Example)
		_, err := adapters[b.Name].promises(rest + b.Mark + "no_such_option=x")
		if err == nil {
			t.Errorf("%s takes any option", b.Name)
			continue
		}
		_, list, _ := strings.Cut(err.Error(), "known are ")
		known := strings.Split(list, ", ")
		if want := slices.Sorted(slices.Values(b.Options)); !slices.Equal(known, want) {
			t.Errorf("%s knows the options %v, the configuration has %v", b.Name, known, want)
		}
		if _, err := adapters[b.Name].promises(b.Example); err != nil {
			t.Errorf("the example %s: %v", b.Example, err)
		}
	}
}
