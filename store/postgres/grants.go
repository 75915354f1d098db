package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed grants/*.sql
var grantFiles embed.FS

// grants are the files with the rights of each role.
var grants = map[string][]string{
	"publisher": {"publisher"}, "relay": {"relay"}, "consumer": {"consumer"}, "viewer": {"viewer"}, "operator": {"viewer", "operator"},
	"admin": {"viewer", "operator", "admin"},
}

// roleName is what the name of a database role may look like in Grants.
var roleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.@-]*$`)

// Grants returns the SQL that gives a database role the rights of a publisher, relay, consumer, viewer, operator or admin. The owner of the
// schema runs it, again after each migration.
func Grants(c Config, what, role string) (string, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return "", err
	}
	if grants[what] == nil {
		return "", fmt.Errorf("there are no rights of a role %q; there are those of publisher, relay, consumer, viewer, operator and admin", what)
	}
	if !roleName.MatchString(role) || len(role) > 63 {
		return "", fmt.Errorf("the name of the role is %q: it may have A to Z, a to z, digits and _ . @ -, not begin with a digit, and be 63 bytes long", role)
	}
	var b strings.Builder
	schema := pgx.Identifier{c.Schema}.Sanitize()
	fill := strings.NewReplacer("{schema}", schema, "{prefix}", schema+"."+c.Prefix, "{role}", pgx.Identifier{role}.Sanitize())
	for _, name := range grants[what] {
		text, err := grantFiles.ReadFile("grants/" + name + ".sql")
		if err != nil {
			return "", err
		}
		b.WriteString(fill.Replace(string(text)))
	}
	return b.String(), nil
}
