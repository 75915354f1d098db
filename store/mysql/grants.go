package mysqlstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed grants/*.sql
var grantFiles embed.FS

// grants are the files with the rights of each role.
var grants = map[string][]string{
	"publisher": {"publisher"}, "relay": {"relay"}, "consumer": {"consumer"}, "viewer": {"viewer"}, "operator": {"viewer", "operator"},
	"admin": {"viewer", "operator", "admin"},
}

// accountName is what an account may look like in Grants: a user, or user@host.
var accountName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*)(?:@([A-Za-z0-9_.%:-]+))?$`)

// Grants returns the SQL that gives an account the rights of a publisher, relay, consumer, viewer, operator or admin in the current
// database. The account is a user, from any host, or user@host. Run it again after each migration.
func Grants(cfg Config, what, account string) (string, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	if grants[what] == nil {
		return "", fmt.Errorf("there are no rights of a role %q; there are those of publisher, relay, consumer, viewer, operator and admin", what)
	}
	parts := accountName.FindStringSubmatch(account)
	if parts == nil {
		return "", fmt.Errorf("the account is %q: write user or user@host, with A to Z, a to z, digits and _ . -", account)
	}
	if parts[2] == "" {
		parts[2] = "%"
	}
	fill := strings.NewReplacer("{prefix}", cfg.Prefix, "{role}", fmt.Sprintf("'%s'@'%s'", parts[1], parts[2]))
	var b strings.Builder
	for _, name := range grants[what] {
		text, err := grantFiles.ReadFile("grants/" + name + ".sql")
		if err != nil {
			return "", err
		}
		b.WriteString(fill.Replace(string(text)))
	}
	return b.String(), nil
}
