package faults

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/relay"
)

// TestTopicIsAdded: during the rollout of a program version that takes an additional topic, processes of both versions
// share the partitions. Nothing of the new topic is skipped, and the order across topics is kept.
func TestTopicIsAdded(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t)
	plain := newRecorder()
	old := p.newRelay(p.store(10), relay.Config{Name: "plain", Topics: []string{"a"}, Version: "1"})
	if err := old.HandleFunc("step", plain.handle); err != nil {
		t.Fatal(err)
	}
	p.world.run(old)
	load := p.newLoad()
	load.topic = "a"
	load.publish(accounts)
	p.runHandler(p.store(10), relay.Config{Name: "plain", Topics: []string{"a", "b"}, Version: "2"}, plain)
	store := p.store(2)
	await(t, "two processes share the partitions", func() string {
		all, err := statusOf(t.Context(), store)
		if err != nil {
			return err.Error()
		}
		held := map[string]int{}
		for _, s := range all["plain"].Partitions {
			held[s.Owner]++
		}
		if len(held) != 2 || held[""] > 0 {
			return fmt.Sprint(held)
		}
		return ""
	})
	for _, topic := range []string{"a", "b", "b", "a", "b"} {
		load.topic = topic
		load.publish(accounts)
	}
	// Messages that the old version cannot take wait for the new one, so the rollout must end.
	if err := old.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitDelivered(plain, "plain", p.facts(), false)
}
