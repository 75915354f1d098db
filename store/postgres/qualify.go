package postgres

import (
	"regexp"
	"strings"
)

// Statements run in connections and transactions of users, whose search_path may include a schema in which others may create
// objects. PostgreSQL looks in pg_catalog first, but prefers a function in any schema of the path if its parameters match better:
// cardinality(text[]) to its own cardinality(anyarray) (CVE-2018-1058). So each call names pg_catalog. Nothing is set in the
// connection, so this works behind a pooler and leaves a user's transaction as it was. Operators do not name a schema: the
// statements cast operands to types for which pg_catalog has the operator, and then it is found first. TestPlanted checks both.

var call = regexp.MustCompile(`\b[a-z_][a-z0-9_]*\(`)

// notCalls are the words before a parenthesis that are not functions of a schema.
var notCalls = map[string]bool{
	"all": true, "any": true, "array": true, "bit": true, "coalesce": true, "extract": true, "greatest": true, "least": true, "nullif": true,
	"operator": true,
}

// qualify adds pg_catalog to the calls of functions that name no schema.
func qualify(sql string) string {
	var b strings.Builder
	done := 0
	for _, at := range call.FindAllStringIndex(sql, -1) {
		start, open := at[0], at[1]-1
		name := sql[start:open]
		if notCalls[name] || start > 0 && strings.ContainsRune(`."`, rune(sql[start-1])) || name == "unnest" && several(sql[open+1:]) {
			continue
		}
		b.WriteString(sql[done:start])
		b.WriteString("pg_catalog.")
		done = start
	}
	b.WriteString(sql[done:])
	return b.String()
}

// several reports whether the arguments at the beginning of a text are more than one. Unnest of several arrays is not a function:
// PostgreSQL replaces it by its own unnest of each, whatever the search_path.
func several(arguments string) bool {
	depth := 0
	for _, c := range arguments {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			if depth--; depth < 0 {
				return false
			}
		case ',':
			if depth == 0 {
				return true
			}
		}
	}
	return false
}
