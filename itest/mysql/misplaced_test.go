//go:build !race

package mysql_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// TestPartitionsThatDoNotExist: messages that a program has inserted into them are moved to those that exist, in order. Rows
// that close gaps are no messages.
func TestPartitionsThatDoNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDatabase(t), mysqlstore.Config{})
	want := []string{w.publish("k")}
	if got := w.fetch(); !slices.Equal(got, want) {
		t.Fatalf("fetched %q, want %q", got, want)
	}
	want = nil
	for _, partition := range []int{99, -2, 99, 1, -1} {
		m := w.message("k")
		exec(t, w.db, `INSERT INTO postrider_log (partition_id, id, topic, message_key, type, message_time, headers, payload, created_at)
			VALUES (?, ?, 't', 'k', 't', 1, '{}', 'p', 1)`, partition, m.ID)
		if partition != -1 {
			want = append(want, m.ID)
		}
	}
	last := w.publish("k")
	for range 2 { // the second time there is nothing to do
		_, err := w.store.Maintain(t.Context(), store.Retention{For: time.Hour})
		must(t, err)
	}
	var got []string
	w.until("all messages are read", func() bool {
		got = append(got, w.fetch()...)
		return len(got) >= 5
	})
	if !slices.Equal(got, append([]string{last}, want...)) {
		t.Errorf("fetched %q, want %q", got, append([]string{last}, want...))
	}
}
