package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestOptionsWinOverTheURL(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Publisher{
		"nats://h":                                {URL: "nats://h"},
		"nats://h?stream=A":                       {URL: "nats://h?stream=A"},
		"nats://h?max_in_flight=1&stream=B":       {URL: "nats://h?max_in_flight=1&stream=A", Options: map[string]string{"stream": "B"}},
		"nats://h?password=a%26b%20c%2B":          {URL: "nats://h", Options: map[string]string{"password": "a&b c+"}},
		"https://h/x?theirs=1#secret=a%2B%2F%3D":  {URL: "https://h/x?theirs=1#secret=old", Options: map[string]string{"secret": "a+/="}},
		"https://h/x?secret=theirs#binary=true":   {URL: "https://h/x?secret=theirs", Options: map[string]string{"binary": "true"}},
		"https://h/x#secret=whsec_a+b/c=&timeout": {URL: "https://h/x#secret=whsec_a+b/c=&timeout"},
	} {
		if got := p.Address(); strings.TrimSuffix(got, "=") != want {
			t.Errorf("%v with %v is %s, want %s", p.URL, slices.Sorted(maps.Keys(p.Options)), got, want)
		}
	}
}
