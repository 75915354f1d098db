package inspect

import (
	"strings"
	"testing"
	"time"
)

func TestTimeOfID(t *testing.T) {
	t.Parallel()
	at, ok := timeOf("0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a")
	if want := time.UnixMilli(0x0199f3a47e1c); !ok || !at.Equal(want) {
		t.Errorf("%v, %t, want %v", at, ok, want)
	}
	for _, id := range []string{"", "x", "0199f3a4-7e1c-4a52-9b61-3f0c2d1e4b5a", strings.Repeat("7", 37), strings.Repeat("z", 14) + "7" + strings.Repeat("z", 21)} {
		if _, ok := timeOf(id); ok {
			t.Errorf("%q is taken for a UUIDv7", id)
		}
	}
}
