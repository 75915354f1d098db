package program

import (
	"testing"
	"time"
)

func TestTimesAreAcceptedAsTheyAreShown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2h":                        now.Add(-2 * time.Hour),
		"2026-01-31":                time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
		"2026-01-31T15:04Z":         time.Date(2026, 1, 31, 15, 4, 0, 0, time.UTC), // of tables
		"2026-01-31T15:04:05.123Z":  now.Add(123 * time.Millisecond),
		"2026-01-31T15:04:05+00:00": now,
	} {
		if got, err := ParseTime("from", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := ParseTime("from", "yesterday", now); err == nil {
		t.Error("yesterday is accepted")
	}
}
