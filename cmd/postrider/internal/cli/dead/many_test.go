package dead_test

import (
	"fmt"
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
	r := clitest.Run(t, late...)
	clitest.Expect(t, r, program.ExitDone, "postrider: go on with --after 50000, or --limit 0 to look at all")
	clitest.Contains(t, r.Err, "postrider: Only 50,000 dead letters were looked at, up to ", "; there are more.")
	clitest.Lacks(t, r.Err, "no dead letters match")
	clitest.Lacks(t, r.Out, "order/9")
	r = clitest.Run(t, append(late, "--after", "50000")...)
	clitest.Contains(t, r.Out, "order/9")
	clitest.Lacks(t, r.Err, "were looked at", "--after")
	clitest.Contains(t, clitest.OK(t, append(late, "--limit", "0")...), "order/9")
	r = clitest.Run(t, "dead", "list", "--store", url, "--limit", "2")
	clitest.Expect(t, r, program.ExitDone, "there are more; go on with --after 2")
	clitest.Lacks(t, r.Err, "were looked at")
	r = clitest.Run(t, "dead", "counts", "--store", url)
	clitest.Expect(t, r, program.ExitDone, "postrider: Only 50,000 dead letters were looked at, from the newest back to ")
	clitest.Contains(t, r.Out, "49,999+", "order.late")
}
