package dead_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// TestMoreDeadThanASearchLooksAt: lists and counts say what was not looked at, and how to go on.
func TestMoreDeadThanASearchLooksAt(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.OK(t, "dead", "counts", "--store", url) // computes their fingerprints
	clitest.Exec(t, url,
		"CREATE TABLE copied AS SELECT * FROM postrider_dead WHERE number = 1",
		"UPDATE copied SET number = NULL",
		fmt.Sprintf("INSERT INTO postrider_dead WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT copied.* FROM n, copied", store.SearchLimit),
		"UPDATE postrider_dead SET type = 'order.late', key = 'order/9' WHERE number = (SELECT max(number) FROM postrider_dead)",
		"DROP TABLE copied")
	late := []string{"dead", "list", "--store", url, "--type", "order.late"}
	after := regexp.MustCompile(`go on with --after (\d+), or --limit 0 to look at all`)
	r := clitest.Run(t, late...)
	for pages := 0; !strings.Contains(r.Out, "order/9"); pages++ { // on a busy machine, a search ends before its limit
		next := after.FindStringSubmatch(r.Err)
		if r.Code != program.ExitDone || next == nil || pages == 6 {
			t.Fatalf("page %d ends with %d: %s%s", pages, r.Code, r.Out, r.Err)
		}
		clitest.Contains(t, r.Err, ",000 dead letters were looked at, up to ", "; there are more.")
		clitest.Lacks(t, r.Err, "no dead letters match")
		r = clitest.Run(t, append(late, "--after", next[1])...)
	}
	clitest.Lacks(t, r.Err, "were looked at", "--after")
	clitest.Contains(t, clitest.OK(t, append(late, "--limit", "0")...), "order/9")
	r = clitest.Run(t, "dead", "list", "--store", url, "--limit", "2")
	clitest.Expect(t, r, program.ExitDone, "there are more; go on with --after 2")
	clitest.Lacks(t, r.Err, "were looked at")
	r = clitest.Run(t, "dead", "counts", "--store", url)
	clitest.Expect(t, r, program.ExitDone, ",000 dead letters were looked at, from the newest back to ")
	clitest.Contains(t, r.Out, ",999+", "order.late")
}
