package output

import (
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

func TestAgoHasTwoUnitsAtMost(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "-", 500: "<1ms", 12 * time.Millisecond: "12ms", 1234 * time.Millisecond: "1.2s", 90 * time.Second: "1m30s",
		3 * time.Hour: "3h0m", 26*time.Hour + 31*time.Second: "26h1m", 75 * time.Hour: "3d3h", -time.Minute: "-1m0s",
	} {
		if got := Ago(d); got != want {
			t.Errorf("%s is written %s, want %s", d, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 50: "3072.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := Number(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
	for got, want := range map[string]string{
		Plural(1, "dead letter"): "1 dead letter", Plural(0, "dead letter"): "0 dead letters", Plural(2000, "key"): "2,000 keys",
		Count(store.Count{N: 10_000, AtLeast: true}): "10,000+", Count(store.Count{N: 3}): "3",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
