package backend

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/config"
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

func TestOptionsWinOverTheURL(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]config.Publisher{
		"nats://h":                                {URL: "nats://h"},
		"nats://h?stream=A":                       {URL: "nats://h?stream=A"},
		"nats://h?max_in_flight=1&stream=B":       {URL: "nats://h?max_in_flight=1&stream=A", Options: map[string]string{"stream": "B"}},
		"nats://h?password=a%26b%20c%2B":          {URL: "nats://h", Options: map[string]string{"password": "a&b c+"}},
		"https://h/x?theirs=1#secret=a%2B%2F%3D":  {URL: "https://h/x?theirs=1#secret=old", Options: map[string]string{"secret": "a+/="}},
		"https://h/x?secret=theirs#binary=true":   {URL: "https://h/x?secret=theirs", Options: map[string]string{"binary": "true"}},
		"https://h/x#secret=whsec_a+b/c=&timeout": {URL: "https://h/x#secret=whsec_a+b/c=&timeout"},
	} {
		b, err := config.BrokerOf(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		if got := withOptions(b, p); strings.TrimSuffix(got, "=") != want {
			t.Errorf("%v with %v is %s, want %s", p.URL, slices.Sorted(maps.Keys(p.Options)), got, want)
		}
	}
}
