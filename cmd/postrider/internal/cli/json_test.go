package cli_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// inJSON are arguments for each command that has --json; several, where they lead to different output.
var inJSON = map[string][]string{
	"attempts":           {id},
	"audit":              {""},
	"dead counts":        {""},
	"dead edit":          {"1 --payload {} --yes --because test", "2 --header a=b --dry-run --because test", "2 --header a=b --yes --because test"},
	"dead import":        {"-"},
	"dead list":          {"", "--relay nobody"},
	"dead show":          {"1"},
	"doctor":             {"", "schema.version"},
	"erase list":         {""},
	"erase messages":     {"--key nobody --yes --because test", "--key order/2 --dry-run --because test", "--key order/2 --yes --because test"},
	"erase resume":       {id},
	"explain":            {id, "--key nobody", "--relay to-nats"},
	"held list":          {""},
	"held show":          {"order/1"},
	"inbox status":       {""},
	"legal-hold list":    {""},
	"legal-hold place":   {"--because test"},
	"legal-hold release": {id + " --yes --because test"},
	"maintain":           {""},
	"migrate status":     {""},
	"parked count":       {""},
	"parked list":        {""},
	"parked show":        {id},
	"purge dead":         {"--resolved-for 1h --yes --because test", "--resolved-for 1h --dry-run --because test"},
	"purge list":         {""},
	"redrive list":       {""},
	"redrive run":        {"1"},
	"redrive show":       {"1"},
	"redrive start":      {"--key nobody --yes", "--key order/3 --dry-run", "--key order/3 --yes --detach"},
	"relay pause":        {"to-nats --because test"},
	"replay cancel":      {id},
	"replay list":        {""},
	"replay pause":       {id},
	"replay resume":      {id},
	"replay run":         {id},
	"replay show":        {id},
	"replay start":       {"--relay to-nats --key nobody --yes --because test", "--relay to-nats --all --dry-run --because test", "--relay to-nats --all --yes --detach --because test"},
	"route explain":      {"orders --publisher nats://127.0.0.1:1?stream=A"},
	"route list":         {"--publisher nats://127.0.0.1:1?stream=A"},
	"saga abandon":       {"order-1 --because test"},
	"saga answer":        {"order-1 --step a --option b --because test"},
	"saga bulk":          {"cancel --saga fulfilment --dry-run --because test", "cancel --saga fulfilment --because test"},
	"saga cancel":        {"order-1 --because test"},
	"saga compensate":    {"order-1 --because test"},
	"saga complete":      {"order-1 --because test"},
	"saga diff":          {"--new /dev/null"},
	"saga done":          {"order-1 --step a --because test"},
	"saga edit":          {"order-1 --patch {} --because test"},
	"saga list":          {""},
	"saga migrate":       {"order-1 --to 2 --because test"},
	"saga pause":         {"order-1 --because test"},
	"saga questions":     {""},
	"saga resume":        {"order-1 --because test"},
	"saga retry":         {"order-1 --because test"},
	"saga show":          {"order-1"},
	"saga skip":          {"order-1 --step a --because test"},
	"saga undone":        {"order-1 --step a --because test"},
	"status":             {"", "--relay to-nats"},
	"tail":               {"--from oldest --stop", "--from oldest --stop --key nobody"},
	"token list":         {""},
	"version":            {""},
}

const id = "0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88" // of nothing

var (
	section  = regexp.MustCompile(`(?m)^## postrider (.+)$`)
	jsonFlag = regexp.MustCompile(`(?m)^ +--json `)
)

// TestJSON: with --json, no command writes anything else to standard output, also if nothing is there or nothing matches.
func TestJSON(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/cli.md")
	clitest.Must(t, err)
	sections := section.FindAllSubmatchIndex(page, -1)
	found := 0
	for i, m := range sections {
		end := len(page)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		if name := string(page[m[2]:m[3]]); jsonFlag.Match(page[m[1]:end]) {
			if found++; inJSON[name] == nil {
				t.Errorf("postrider %s has --json, and no arguments in inJSON", name)
			}
		}
	}
	if found != len(inJSON) {
		t.Errorf("%d commands have --json, inJSON has %d", found, len(inJSON))
	}
	for state, url := range map[string]string{"empty": clitest.NewOutbox(t), "with dead letters": clitest.WithDead(t)} {
		written := 0
		for name, lines := range inJSON {
			for _, line := range lines {
				args := append(strings.Fields(name+" "+line), "--json")
				if name != "version" && !strings.HasPrefix(name, "route ") {
					args = append(args, "--store", url)
				}
				r := clitest.Run(t, args...)
				if err := values(r.Out); err != nil {
					t.Errorf("postrider %s, %s: %v in what it wrote:\n%s", strings.Join(args, " "), state, err, r.Out)
				}
				if r.Code == program.ExitUsage {
					t.Errorf("postrider %s: %s", strings.Join(args, " "), r.Err)
				}
				written += min(len(r.Out), 1)
			}
		}
		if written < 20 {
			t.Errorf("%s: only %d commands wrote JSON", state, written)
		}
	}
}

// values reads JSON values to the end of a text.
func values(text string) error {
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		if err := d.Decode(new(any)); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
