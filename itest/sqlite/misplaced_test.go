package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// TestPartitionsThatDoNotExist: messages that a program has inserted into them are moved to those that exist, in order.
func TestPartitionsThatDoNotExist(t *testing.T) {
	t.Parallel()
	db := newFile(t).migrated(t, sqlite.Config{Partitions: 4})
	s := newStore(t, db, sqlite.Config{})
	for i, partition := range []int{99, -1, 99, 4} {
		execute(t, db, `INSERT INTO postrider_log (partition, id, topic, key, type, message_time, tenant, payload, created_at)
			VALUES (?, ?, 't', 'k', 'x', 1, 'acme', x'01', 1)`, partition, string(rune('a'+i)))
	}
	for range 2 { // the second time there is nothing to do
		if _, err := s.Maintain(t.Context(), store.Retention{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, m := range fetchAll(t, s) {
		if m.Tenant != "acme" || string(m.Payload) != "\x01" || m.CreatedAt.UnixMicro() != 1 {
			t.Errorf("message %s is %+v", m.ID, m)
		}
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []string{"a", "b", "c", "d"}) {
		t.Errorf("fetched %q", ids)
	}
}
