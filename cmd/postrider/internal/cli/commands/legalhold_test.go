package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/legalhold"
)

func TestLegalHold(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.Contains(t, clitest.Run(t, "legal-hold", "list", "--store", url).Err, "no legal holds")
	clitest.Fails(t, program.ExitUsage, "because", "legal-hold", "place", "--store", url)
	var h legalhold.Hold
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "legal-hold", "place", "--because", "case 17", "--by", "eva", "--json", "--store", url)), &h))
	clitest.Contains(t, clitest.OK(t, "legal-hold", "list", "--store", url), h.ID, "(active)", "case 17", "eva")
	maintain := []string{"maintain", "--without-relay", "--keep-delivered", "1ns", "--store", url}
	clitest.Contains(t, clitest.OK(t, maintain...), "dropped 0 messages", "nothing is dropped: a legal hold is active", "case 17")
	clitest.Fails(t, program.ExitFailed, "a legal hold is active", "erase", "messages", "--key", "order/1", "--because", "x", "--yes", "--store", url)
	release := []string{"legal-hold", "release", h.ID, "--because", "closed", "--by", "ann", "--store", url}
	clitest.Fails(t, program.ExitUsage, "Release legal hold "+h.ID, release...)
	clitest.Contains(t, clitest.OK(t, append(release, "--yes")...), "is released")
	clitest.Fails(t, program.ExitFailed, "the legal hold is released", append(release, "--yes")...)
	clitest.Contains(t, clitest.OK(t, "legal-hold", "list", "--json", "--store", url), `"released_by":"ann"`)
	clitest.Contains(t, clitest.OK(t, maintain...), "dropped 1 message")
}
