package commands_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestPrintGrants(t *testing.T) {
	t.Parallel()
	for store, words := range map[string]string{
		"postgres://any?schema=mail&prefix=p_": `on "mail".p_log to "shop"`, "mysql://any/shop?prefix=p_": "ON p_log TO 'shop'@'%'",
	} {
		for _, role := range []string{"publisher", "relay", "consumer", "viewer", "operator", "admin"} {
			out := clitest.OK(t, "migrate", "grants", "--store", store, "--role", role, "--to", "shop")
			if !strings.Contains(out, words) && !strings.Contains(out, strings.ReplaceAll(words, "_log", "_meta")) || strings.Contains(out, "{") {
				t.Errorf("%s: grants of %s: %s", store, role, out)
			}
		}
	}
	clitest.Fails(t, program.ExitUsage, "SQLite has no roles", "migrate", "grants", "--store", "sqlite:x.db", "--role", "relay", "--to", "a")
	clitest.Fails(t, program.ExitUsage, "allowed: publisher, relay", "migrate", "grants", "--store", "postgres://any", "--role", "dba", "--to", "a")
	clitest.Fails(t, program.ExitUsage, `the name of the role is "a b"`, "migrate", "grants", "--store", "postgres://any", "--role", "relay", "--to", "a b")
}
