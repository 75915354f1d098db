package docs_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/itest/release"
)

// TestFirstConsumer: the consumer in docs/inbox.md is that of part 2 of the tutorial, which TestInstallable runs.
func TestFirstConsumer(t *testing.T) {
	t.Parallel()
	var programs []string
	for _, page := range []string{"docs/start/consumer.md", "docs/inbox.md"} {
		program, err := release.ProgramOf(read(t, page))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		programs = append(programs, program)
	}
	if programs[0] != programs[1] || !strings.Contains(programs[0], "inbox.NewConsumer") {
		t.Errorf("docs/inbox.md has the program\n%s\nand part 2 of the tutorial\n%s", programs[1], programs[0])
	}
}

// TestServerOfTheTutorial: part 2 installs the NATS server that postrider is built with, so that most of it is compiled already.
func TestServerOfTheTutorial(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(read(t, "cmd/postrider/go.mod"), "github.com/nats-io/nats-server/v2 ")
	version, _, _ := strings.Cut(rest, "\n")
	if want := "go install github.com/nats-io/nats-server/v2@" + version + "\n"; !found || !strings.Contains(read(t, "docs/start/consumer.md"), want) {
		t.Errorf("docs/start/consumer.md does not have %q", want)
	}
}
