package store_test

import (
	"testing"

	"github.com/postrider/postrider/store"
)

func TestMatchTopic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"orders", "orders", true}, {"orders", "orders.new", false}, {"*", "", true}, {"*", "anything", true},
		{"orders.*", "orders.new", true}, {"orders.*", "orders.", true}, {"orders.*", "orders", false},
		{"*.new", "orders.new", true}, {"*.new", "orders.new.er", false}, {"a*b*c", "abc", true}, {"a*b*c", "aXbYc", true},
		{"a*b*c", "acb", false}, {"a*a", "a", false}, {"*ab*ab", "abab", true}, {"*ab*ab", "ab", false}, {"**", "x", true},
	} {
		if got := store.MatchTopic(c.pattern, c.topic); got != c.want {
			t.Errorf("MatchTopic(%q, %q) = %v", c.pattern, c.topic, got)
		}
	}
}

func FuzzMatchTopic(f *testing.F) {
	f.Add("a*b", "aXb")
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		if store.MatchTopic(pattern, topic) && !store.MatchTopic("*"+pattern, "x"+topic) {
			t.Errorf("%q matches %q, but a wild beginning does not", pattern, topic)
		}
		if !store.MatchTopic("*", topic) {
			t.Errorf("* does not match %q", topic)
		}
	})
}
