// Package archtest knows who may import whom in this repository, and which package names are taken.
package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Root is the import path of the root package and module.
const Root = "github.com/postrider/postrider"

// Package is what go list -json says about a package, as far as the rules need it.
type Package struct {
	ImportPath, Name                   string
	Imports, TestImports, XTestImports []string
}

// room is a folder, with the packages in it, and what its non-test code may import of this repository besides itself
// (see unit). Each name allows the folder and all below it; "." is the root package alone.
type room struct {
	folder string
	may    []string
}

// rooms are looked up from the top; the first whose folder holds the package applies.
var rooms = []room{
	// The vocabulary depends on nothing.
	{".", nil},
	{"internal", []string{".", "internal"}},
	// The rooms of the house state the store interfaces that they need themselves.
	{"deadletter", []string{".", "internal"}},
	{"outbox", []string{".", "internal"}},
	{"relay", []string{".", "internal", "deadletter"}},
	{"held", []string{".", "internal", "relay"}},
	// The scenarios of consumers need a broker, an outbox for effects, and what operators use.
	{"inbox/inboxtest", []string{".", "internal", "broker/memory", "deadletter", "held", "outbox", "relay"}},
	{"inbox", []string{".", "internal", "relay"}}, // what it puts aside, a relay's store keeps and operators see as a relay's
	{"saga", []string{".", "internal"}},
	{"resilience", []string{".", "internal"}},
	// Stores implement those interfaces and know no broker; brokers know messages and no room.
	{"store/storetest", []string{".", "internal", "deadletter", "held", "outbox", "relay", "inbox", "saga"}},
	{"store", []string{".", "internal", "deadletter", "outbox", "relay", "inbox", "saga"}},
	{"broker", []string{".", "internal/logmark"}}, // how the mark of a message is written is the same for all
	{"telemetry", []string{".", "internal"}},
	// These wire everything, tests aside.
	{"admin", []string{".", "internal", "deadletter", "outbox", "relay", "inbox", "saga", "resilience"}},
	{"cmd", []string{"*"}},
	{"itest", []string{"*"}},
	{"bench", []string{"*"}},
	{"examples", []string{"*"}},
}

// taken are the names that users import too, and the names that say nothing.
var taken = []string{"util", "utils", "common", "helper", "helpers", "misc", "sql", "http", "nats", "kafka", "redis", "rabbitmq"}

// Violations lists every breach of the rules among the packages of this repository, in words.
func Violations(packages []Package) []string {
	var found []string
	for _, p := range packages {
		from, ours := relative(p.ImportPath)
		if !ours {
			continue
		}
		if slices.Contains(taken, p.Name) {
			found = append(found, fmt.Sprintf("%s: a package must not be named %s", from, p.Name))
		}
		found = append(found, importsOf(from, p)...)
	}
	return found
}

func importsOf(from string, p Package) []string {
	i := slices.IndexFunc(rooms, func(r room) bool { return r.folder == from || (r.folder != "." && within(r.folder, from)) })
	if i < 0 {
		return []string{fmt.Sprintf("%s: in no room that internal/archtest knows; give it one", from)}
	}
	var found []string
	for _, imported := range p.Imports {
		to, ours := relative(imported)
		if !ours {
			continue
		}
		if isTest(to) && !isTest(from) && !within("bench", from) { // measuring needs the tests' servers
			found = append(found, fmt.Sprintf("%s imports %s outside its tests", from, to))
		}
		if unit(from) != unit(to) && !rooms[i].allows(to) {
			found = append(found, fmt.Sprintf("%s must not import %s", from, to))
		}
	}
	return found
}

// allows tells whether code of the room may import a folder of another.
func (r room) allows(to string) bool {
	return slices.ContainsFunc(r.may, func(allowed string) bool {
		return allowed == "*" || allowed == to || (allowed != "." && within(allowed, to))
	})
}

// unit is what may import itself freely: a room, or a single store or broker, since those do not know each other.
func unit(folder string) string {
	parts := strings.SplitN(folder, "/", 3)
	if parts[0] == "store" || parts[0] == "broker" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// relative is the folder of one of our packages, "." for the root package.
func relative(importPath string) (folder string, ours bool) {
	if importPath == Root {
		return ".", true
	}
	return strings.CutPrefix(importPath, Root+"/")
}

func within(folder, sub string) bool { return sub == folder || strings.HasPrefix(sub, folder+"/") }

// isTest says that a package serves tests: storetest, brokertest and their like.
func isTest(folder string) bool {
	base := path.Base(folder)
	return base != "itest" && strings.HasSuffix(base, "test") || within("itest", folder)
}
