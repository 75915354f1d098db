package kafkabroker_test

import (
	"strings"
	"testing"

	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestTopicName(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"order.placed":         "order.placed",
		"orders_2024-v1":       "orders_2024-v1",
		"with space":           "with_x20space",
		"with_x20space":        "with_x5Fx20space",
		"_x2":                  "_x2",
		"größe/🚚":              "gr_xC3_xB6_xC3_x9Fe_x2F_xF0_x9F_x9A_x9A",
		".":                    "_x2E",
		"..":                   "_x2E.",
		"...":                  "...",
		strings.Repeat("t", 9): "ttttttttt",
	} {
		if got := kafkabroker.TopicName("", topic); got != want {
			t.Errorf("topic %q has the name %s, want %s", topic, got, want)
		}
	}
	if got := kafkabroker.TopicName("shop.", "."); got != "shop.." {
		t.Errorf("after a prefix, a dot has the name %s", got)
	}
	if got := kafkabroker.Topic("shop.", "other.orders"); got != "other.orders" {
		t.Errorf("a name without the prefix leads back to %s", got)
	}
}

func FuzzTopicName(f *testing.F) {
	for _, topic := range []string{"order.placed", "a b", "_x20", "__x20", "_x_x20", ".", "..", "\xff_x", "_x2 "} {
		f.Add("shop.", topic)
		f.Add("", topic)
	}
	f.Fuzz(func(t *testing.T, prefix, topic string) {
		prefix = kafkabroker.TopicName("", prefix)
		if topic == "" {
			return
		}
		name := kafkabroker.TopicName(prefix, topic)
		for i := range len(name) {
			if c := name[i]; !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", rune(c)) {
				t.Fatalf("the name of %q is %q", topic, name)
			}
		}
		if name == "." || name == ".." {
			t.Errorf("the name of %q is %q", topic, name)
		}
		if got := kafkabroker.Topic(prefix, name); got != topic {
			t.Errorf("%q has the name %q, which leads back to %q", topic, name, got)
		}
	})
}
