package status

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestStatusSaysSinceWhenNobodyDelivers(t *testing.T) {
	t.Parallel()
	gone := store.RelayStatus{Owners: []store.OwnerStatus{{SeenAgo: 50 * time.Hour}, {SeenAgo: 3 * time.Hour}}}
	if got := alive(gone); got != "none for 3h0m" {
		t.Errorf("processes: %q", got)
	}
	if got := alive(store.RelayStatus{}); got != "none" {
		t.Errorf("processes of a relay that has had none: %q", got)
	}
}

func TestStatusShowsNotices(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	err := commands{&program.Program{Stdout: &b}}.writeStatus("sqlite:x", store.Status{Notices: []string{"the database was restored"}}, nil, false)
	if err != nil || !strings.Contains(b.String(), "Note: the database was restored") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}
