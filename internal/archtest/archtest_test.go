package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestWhoMayImportWhom checks all packages of the repository against the rules.
func TestWhoMayImportWhom(t *testing.T) {
	t.Parallel()
	packages := list[Package](t, repository(t), nil, "work")
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages only", len(packages))
	}
	for _, v := range Violations(packages) {
		t.Error(v)
	}
}

// TestRootModuleNeedsOnlyTheStandardLibrary: linking postrider links no other dependencies. Tests included.
func TestRootModuleNeedsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	type dependency struct {
		ImportPath string
		Standard   bool
		Module     struct{ Path string }
	}
	for _, d := range list[dependency](t, repository(t), []string{"GOWORK=off"}, "-deps", "-test", "./...") {
		if !d.Standard && d.Module.Path != Root {
			t.Errorf("the root module depends on %s of %s", d.ImportPath, d.Module.Path)
		}
	}
}

var violations = map[string]struct {
	graph []Package
	want  []string
}{
	"as it should be": {graph: []Package{
		{ImportPath: Root, Name: "postrider", Imports: []string{"context"}},
		{ImportPath: Root + "/relay", Name: "relay", Imports: []string{Root, Root + "/internal/signal"}},
		{ImportPath: Root + "/store/memory", Name: "memory", Imports: []string{Root, Root + "/store", Root + "/internal/signal"},
			XTestImports: []string{Root + "/store/storetest"}},
		{ImportPath: Root + "/store/storetest", Name: "storetest", Imports: []string{Root + "/relay", "testing"}},
		{ImportPath: Root + "/cmd/postrider", Name: "main", Imports: []string{Root + "/broker/nats", Root + "/store/sqlite"}},
		{ImportPath: Root + "/broker/nats", Name: "jetstream", Imports: []string{Root, Root + "/broker/nats/internal/subject"}},
		{ImportPath: Root + "/broker/nats/internal/subject", Name: "subject"},
		{ImportPath: "example.com/other", Name: "util"},
	}},
	"the root imports another package": {
		graph: []Package{{ImportPath: Root, Imports: []string{Root + "/internal/signal"}}},
		want:  []string{". must not import internal/signal"},
	},
	"packages know each other": {
		graph: []Package{{ImportPath: Root + "/outbox", Imports: []string{Root + "/relay"}}},
		want:  []string{"outbox must not import relay"},
	},
	"a name that only begins like an allowed one": {
		graph: []Package{{ImportPath: Root + "/relay", Imports: []string{Root + "/deadletters"}}},
		want:  []string{"relay must not import deadletters"},
	},
	"a store knows a broker": {
		graph: []Package{{ImportPath: Root + "/store/postgres", Imports: []string{Root + "/broker/memory"}}},
		want:  []string{"store/postgres must not import broker/memory"},
	},
	"a store knows another": {
		graph: []Package{{ImportPath: Root + "/store/sqlite", Imports: []string{Root + "/store/memory"}}},
		want:  []string{"store/sqlite must not import store/memory"},
	},
	"the interfaces of stores know a capability": {
		graph: []Package{{ImportPath: Root + "/store", Imports: []string{Root + "/deadletter"}}},
		want:  []string{"store must not import deadletter"},
	},
	"a store knows its interfaces, not a saga": {
		graph: []Package{{ImportPath: Root + "/store/sqlite", Imports: []string{Root + "/store", Root + "/saga"}}},
		want:  []string{"store/sqlite must not import saga"},
	},
	"an engine knows a store": {
		graph: []Package{{ImportPath: Root + "/relay", Imports: []string{Root + "/store", Root + "/store/memory"}}},
		want:  []string{"relay must not import store/memory"},
	},
	"a broker knows the relay": {
		graph: []Package{{ImportPath: Root + "/broker/nats", Imports: []string{Root + "/relay"}}},
		want:  []string{"broker/nats must not import relay"},
	},
	"a test package outside tests": {
		graph: []Package{{ImportPath: Root + "/cmd/postrider", Imports: []string{Root + "/broker/brokertest"}}},
		want:  []string{"cmd/postrider imports broker/brokertest outside its tests"},
	},
	"a command knows another": {
		graph: []Package{
			{ImportPath: Root + "/cmd/postrider/internal/cli/status", Imports: []string{
				Root + "/cmd/postrider/internal/cli/output", Root + "/cmd/postrider/internal/cli/dead"}},
			{ImportPath: Root + "/cmd/postrider/internal/cli/output", Imports: []string{Root + "/cmd/postrider/internal/cli/program"}},
			{ImportPath: Root + "/cmd/postrider/internal/cli", Imports: []string{Root + "/cmd/postrider/internal/cli/dead"}},
		},
		want: []string{
			"cmd/postrider/internal/cli/status must not import cmd/postrider/internal/cli/dead",
			"cmd/postrider/internal/cli/output must not import cmd/postrider/internal/cli/program",
		},
	},
	"a taken name": {
		graph: []Package{{ImportPath: Root + "/broker/nats", Name: "nats"}},
		want:  []string{"broker/nats: a package must not be named nats"},
	},
	"an unknown folder": {
		graph: []Package{{ImportPath: Root + "/attic"}},
		want:  []string{"attic: in no rule of internal/archtest; give it one"},
	},
}

func TestViolations(t *testing.T) {
	t.Parallel()
	for name, tt := range violations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Violations(tt.graph); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// repository is the folder of the root module; tests run in their package's folder.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// list decodes the output of go list -json, of which it asks for the fields of T only: others, such as Stale, take the go
// command many times longer.
func list[T any](t *testing.T, dir string, env []string, args ...string) []T {
	t.Helper()
	var fields []string
	for f := range reflect.TypeFor[T]().Fields() {
		fields = append(fields, f.Name)
	}
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list", "-json=" + strings.Join(fields, ",")}, args)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list %q in %s: %v\n%s", args, dir, err, stderr.String())
	}
	var all []T
	decoder := json.NewDecoder(strings.NewReader(stdout.String()))
	for {
		var one T
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}
