package commands_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	exported, url := clitest.WithDead(t), clitest.NewOutbox(t) // imported, they have no message in the log
	clitest.OK(t, "dead", "import", clitest.WriteFile(t, clitest.OK(t, "dead", "export", "--store", exported)), "--store", url)
	clitest.OK(t, "dead", "discard", "1", "2", "--because", "no use", "--store", url)
	purge := []string{"purge", "dead", "--resolved-for", "720h", "--because", "kept long enough", "--by", "eva", "--store", url}
	clitest.Contains(t, clitest.OK(t, append(purge, "--dry-run")...), "0 resolved dead letters match; nothing was done")
	clitest.Contains(t, clitest.OK(t, append(purge, "--dry-run", "--json")...), `"dead_letters": 0`)
	clitest.Contains(t, clitest.Run(t, "purge", "list", "--store", url).Err, "no purges")
	clitest.Fails(t, program.ExitFailed, `no relay or consumer "to-moon"`, append(purge, "--relay", "to-moon")...)
	clitest.Fails(t, program.ExitUsage, "--resolved-for must be 1m0s or longer", "purge", "dead", "--because", "x", "--store", url)
	clitest.Fails(t, program.ExitUsage, "because", "purge", "dead", "--resolved-for", "1h", "--yes", "--store", url)

	o := clitest.OpenOutbox(t, url)
	clitest.Must(t, o.Change(t.Context(), store.Operation{}, func(w store.Writer) error { // as if they had been resolved long ago
		n, _, err := w.RemoveResolved(t.Context(), store.ResolvedQuery{Before: time.Now().Add(time.Hour), Limit: 1})
		if n != 1 {
			t.Errorf("%d removed", n)
		}
		return err
	}))
	done, err := deadletter.New(o).Purge(t.Context(), deadletter.PurgePlan{ResolvedFor: time.Hour, By: "eva", Reason: "kept long enough"}, nil)
	if err != nil || done.Removed != 0 || done.EndedAt.IsZero() {
		t.Errorf("purge: %+v, %v", done, err)
	}
	clitest.Contains(t, clitest.OK(t, "purge", "list", "--store", url), "(all)", "eva", "kept long enough")
	clitest.Contains(t, clitest.OK(t, "purge", "list", "--json", "--store", url), `"removed":0`, `"by":"eva"`)
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--state", "any", "--store", url), "discarded", "open")
}

// TestPurgeRemoves: what was resolved long ago is removed, after a question, and named; what is open or was resolved lately stays.
func TestPurgeRemoves(t *testing.T) {
	t.Parallel()
	exported, url := clitest.WithDead(t), clitest.NewOutbox(t)
	clitest.OK(t, "dead", "import", clitest.WriteFile(t, clitest.OK(t, "dead", "export", "--store", exported)), "--store", url)
	clitest.OK(t, "dead", "discard", "1", "2", "--because", "no use", "--store", url)
	clitest.Exec(t, url, "UPDATE postrider_dead SET resolved_at = resolved_at - 31 * 86400 * 1000000 WHERE number = 1")
	purge := []string{"purge", "dead", "--resolved-for", "720h", "--because", "kept long enough", "--by", "eva", "--store", url}
	clitest.Contains(t, clitest.OK(t, append(purge, "--dry-run")...), "1 resolved dead letter match")
	clitest.Fails(t, program.ExitUsage, "--yes", purge...) // nobody can be asked
	clitest.Contains(t, clitest.OK(t, "dead", "show", "1", "--store", url), "no use")
	clitest.Contains(t, clitest.OK(t, append(purge, "--yes")...), "removed 1 dead letter")
	clitest.Fails(t, program.ExitFailed, "no such dead letter", "dead", "show", "1", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "no use")
	clitest.Contains(t, clitest.OK(t, append(purge, "--yes", "--json")...), `"dead_letters": 0`)
	clitest.Contains(t, clitest.OK(t, append(purge, "--yes")...), "0 resolved dead letters match; nothing was done")
	clitest.Contains(t, clitest.OK(t, "purge", "list", "--json", "--store", url), `"removed":1`, `"by":"eva"`)
	clitest.Contains(t, clitest.OK(t, "audit", "--json", "--store", url), "PurgeDead", "eva", "kept long enough")
}
