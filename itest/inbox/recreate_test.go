package inbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
)

// createTopic creates a topic of one partition, also while one of the same name is being deleted. When it returns, the broker's metadata
// shows this topic and no deleted one.
func createTopic(t testing.TB, admin *kadm.Client, name string, settings map[string]*string) {
	t.Helper()
	created, err := admin.CreateTopic(t.Context(), 1, 1, settings, name)
	shown := func() bool {
		if err != nil {
			created, err = admin.CreateTopic(t.Context(), 1, 1, settings, name)
			return false
		}
		listed, listErr := admin.ListTopics(t.Context(), name)
		return listErr == nil && listed[name].ID == created.ID && len(listed[name].Partitions) == 1
	}
	for deadline := time.Now().Add(3 * time.Minute); !shown(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("topic %s does not appear: %v", name, err)
		}
	}
}

// deleteStream deletes a stream that is created again. The server removes the folder of all streams in the background if it is empty, and
// fails to create a stream at that moment: another stream keeps the folder.
func deleteStream(t testing.TB, js jetstream.JetStream, name string) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "stays", Subjects: []string{"stays"}})
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		must(t, err)
	}
	must(t, js.DeleteStream(t.Context(), name))
}
