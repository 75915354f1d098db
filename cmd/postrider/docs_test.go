package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/config"
)

var update = flag.Bool("update", false, "write the reference in docs/cli.md")

const (
	cliPage       = "../../docs/cli.md"
	referenceMark = "<!-- The rest is written by: go test ./cmd/postrider -run TestCLIPage -update -->\n"
)

// TestCLIPage checks docs/cli.md against the commands: everything after the mark is generated from their help.
func TestCLIPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(cliPage)
	must(t, err)
	head, reference, found := strings.Cut(string(page), referenceMark)
	if !found {
		t.Fatalf("%s has no line %q", cliPage, referenceMark)
	}
	var b strings.Builder
	writeReference(&b, (&Program{}).rootCommand())
	if *update {
		must(t, os.WriteFile(cliPage, []byte(head+referenceMark+b.String()), 0o644))
		return
	}
	if reference != b.String() {
		t.Errorf("%s is not what the commands say; run: go test ./cmd/postrider -run TestCLIPage -update", cliPage)
	}
	for code := range strings.Lines(rootLong[strings.Index(rootLong, "Exit codes:\n")+len("Exit codes:\n"):]) {
		if number := strings.Fields(code)[0]; !strings.Contains(head, "| "+number+" |") {
			t.Errorf("%s does not explain exit code %s", cliPage, number)
		}
	}
}

func writeReference(b *strings.Builder, c *cobra.Command) {
	if c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if c.HasParent() {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", c.Long)
		}
	}
	if c.Runnable() && !c.HasSubCommands() {
		fmt.Fprintf(b, "\n```text\n%s\n\n%s```\n", c.UseLine(), c.LocalFlags().FlagUsages())
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimSpace(c.Example), "\n  ", "\n"))
	}
	for _, sub := range c.Commands() {
		writeReference(b, sub)
	}
}

func TestExampleConfigurationHasEveryKeyAndIsValid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../postrider.example.yaml")
	must(t, err)
	c, _, err := config.Parse("postrider.example.yaml", text, nil)
	must(t, err)
	for _, r := range c.Relays {
		s, _ := c.StoreOf(r)
		relayConfig(r, s, c.StopTimeout, nil, nil)
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	must(t, err)
	for _, key := range leafKeys(reflect.TypeFor[config.Config](), "") {
		name := key[strings.LastIndex(key, ".")+1:]
		if name != "options" && !strings.Contains(string(text), name+":") {
			t.Errorf("postrider.example.yaml has no %s", key)
		}
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/configuration.md does not explain %s", key)
		}
	}
	for _, b := range config.Brokers {
		_, section, _ := strings.Cut(string(page), "\n#### "+b.Name+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		for _, option := range b.Options {
			if !strings.Contains(section, "`"+option+"`") {
				t.Errorf("docs/configuration.md does not explain the option %s in its section %s", option, b.Name)
			}
		}
	}
}

// leafKeys lists the paths of all keys.
func leafKeys(t reflect.Type, path string) []string {
	var out []string
	for f := range t.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		if path != "" {
			key = path + "." + key
		}
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			out = append(out, leafKeys(inner, key)...)
		} else {
			out = append(out, key)
		}
	}
	return out
}
