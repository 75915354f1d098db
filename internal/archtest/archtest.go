// Package archtest checks which packages of this repository may import which, and which package names are taken.
package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Root is the import path of the root package and module.
const Root = "github.com/postrider/postrider"

// Package is the part of go list -json output that the rules need.
type Package struct {
	ImportPath, Name                   string
	Imports, TestImports, XTestImports []string
}

// rule is a folder, with the packages in it, and what its non-test code may import of this repository besides itself (see
// unit). Each name allows the folder and all below it; "." and "store" are only the package itself, "store/*" those below it.
type rule struct {
	folder string
	may    []string
}

// rules are searched from the top; the first whose folder contains the package applies.
var rules = []rule{
	// The root package depends on nothing.
	{".", nil},
	{"internal/logreader", []string{".", "store"}},
	{"internal/stored", []string{".", "store"}},
	{"internal", []string{".", "internal"}},
	// These packages use the interfaces of stores.
	{"observe", []string{".", "store"}},
	{"deadletter", []string{".", "internal", "store", "legalhold"}},
	{"outbox", []string{".", "internal", "store", "observe"}},
	{"relay/internal/schedule", []string{"store"}},                                // a state machine of plain data
	{"relay", []string{".", "internal", "store", "observe", "held", "retention"}}, // a relay applies decisions, and drops what need not be kept
	{"held", []string{".", "internal", "store", "legalhold"}},
	{"replay", []string{".", "internal", "store"}},
	{"erasure", []string{".", "internal", "store", "legalhold"}},
	{"legalhold", []string{".", "internal", "store"}},
	{"pause", []string{".", "internal", "store"}},
	{"retention", []string{".", "store", "legalhold", "replay"}},
	{"inspect", []string{".", "internal", "store", "deadletter", "held"}},
	// The consumer scenarios need a broker, an outbox for messages that handlers publish, and the operators' packages.
	{"inbox/inboxtest", []string{".", "internal", "store", "broker/memory", "deadletter", "held", "outbox", "relay"}},
	{"inbox", []string{".", "internal", "store", "observe", "held", "relay"}},                                           // a relay in the consumer works on its parked messages
	{"saga/scenariotest", []string{".", "store", "observe", "broker/memory", "outbox", "relay", "inbox", "deadletter"}}, // they need a broker between services
	{"saga", []string{".", "internal", "outbox", "relay", "inbox", "store", "observe"}},
	// Users' tests need everything that a message passes, in memory.
	{"postridertest", []string{".", "internal", "store", "store/memory", "broker/memory", "deadletter", "outbox", "relay", "inbox"}},
	{"resilience", []string{".", "internal"}},
	{"config", []string{"relay", "inbox"}},                    // settings become theirs
	{"doctor", []string{".", "internal", "store", "erasure"}}, // it finds erasures that were interrupted
	// The interfaces that stores implement. Stores know no broker and no capability; brokers know only messages.
	{"store", []string{"."}},
	{"store/storetest", []string{".", "internal", "store", "deadletter", "held", "replay", "erasure", "legalhold", "pause", "retention", "outbox", "relay", "inbox"}},
	{"store/*", []string{".", "internal", "store", "doctor"}},
	// The format of a message's mark, how URLs are read and shown, and what an outage at the start logs, are the same for all.
	{"broker", []string{".", "internal/address", "internal/logmark", "internal/outage"}},
	{"telemetry/internal/scenario", []string{"*"}}, // a system to try alerts with
	{"telemetry", []string{".", "store", "observe", "relay", "inbox", "saga"}},
	// These may use everything, ignoring tests.
	{"admin/web/webtest", []string{".", "store", "store/memory", "deadletter", "doctor", "inspect"}},
	{"admin", []string{".", "internal", "store", "deadletter", "doctor", "held", "inspect", "pause", "saga", "docs"}}, // the pages serve the manual
	{"docs", nil},
	{"cmd", []string{"*"}},
	{"itest", []string{"*"}},
	{"bench", []string{"*"}},
	{"examples", []string{"*"}},
}

// commands is the folder of the packages of the command line, one for each noun.
const commands = "cmd/postrider/internal/cli"

// besides is what a noun of the command line may import of other nouns. All nouns import output and program.
var besides = map[string][]string{
	"selection": nil,
	"redrive":   {"selection"},
	"dead":      {"redrive", "selection"}, // postrider dead redrive starts a redrive
	"explain":   {"status"},
	"inbox":     {"status"},
	"route":     {"relay"},
}

// commandMay says whether a package of the command line may import another.
func commandMay(from, to string) bool {
	from, inside := strings.CutPrefix(from, commands+"/")
	to, noun := strings.CutPrefix(to, commands+"/")
	switch {
	case !inside || !noun || from == "clitest": // the root of the commands imports all of them
		return true
	case from == "output":
		return false
	case from == "program":
		return to == "output"
	default:
		return to == "output" || to == "program" || slices.Contains(besides[from], to)
	}
}

// taken are names that users import too, and names without meaning.
var taken = []string{"util", "utils", "common", "helper", "helpers", "misc", "sql", "http", "nats", "kafka", "redis", "rabbitmq"}

// Violations lists every violation of the rules by the packages of this repository.
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
	i := slices.IndexFunc(rules, func(r rule) bool { return covers(r.folder, from) })
	if i < 0 {
		return []string{fmt.Sprintf("%s: in no rule of internal/archtest; give it one", from)}
	}
	var found []string
	for _, imported := range p.Imports {
		to, ours := relative(imported)
		if !ours {
			continue
		}
		if isTest(to) && !isTest(from) && !within("bench", from) { // benchmarks need the tests' servers
			found = append(found, fmt.Sprintf("%s imports %s outside its tests", from, to))
		}
		if unit(from) != unit(to) && !rules[i].allows(to) || !commandMay(from, to) {
			found = append(found, fmt.Sprintf("%s must not import %s", from, to))
		}
	}
	return found
}

// allows says whether code of the rule may import a folder of another.
func (r rule) allows(to string) bool {
	return slices.ContainsFunc(r.may, func(allowed string) bool {
		return allowed == "*" || covers(allowed, to)
	})
}

// covers reports whether a name in rule.may includes a folder.
func covers(name, folder string) bool {
	if name == "." || name == "store" {
		return name == folder
	}
	return within(strings.TrimSuffix(name, "/*"), folder)
}

// unit is what may import itself freely: a top-level folder, or a single store or broker, since those do not know each
// other.
func unit(folder string) string {
	parts := strings.SplitN(folder, "/", 3)
	if parts[0] == "store" || parts[0] == "broker" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// relative returns the folder of one of this repository's packages, "." for the root package.
func relative(importPath string) (folder string, ours bool) {
	if importPath == Root {
		return ".", true
	}
	return strings.CutPrefix(importPath, Root+"/")
}

func within(folder, sub string) bool { return sub == folder || strings.HasPrefix(sub, folder+"/") }

// isTest says whether a package serves tests: storetest, brokertest and the like.
func isTest(folder string) bool {
	base := path.Base(folder)
	return base != "itest" && strings.HasSuffix(base, "test") || within("itest", folder)
}
