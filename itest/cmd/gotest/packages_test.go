package main

import (
	"slices"
	"testing"
)

func TestSlowPackagesExist(t *testing.T) {
	t.Parallel()
	all, err := list([]string{"work"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Concat(slow, raceless, core, divided, modelled) {
		if !slices.ContainsFunc(all, func(p listed) bool { return p.ImportPath == module+path && p.tested() }) {
			t.Errorf("there are no tests in %s", path)
		}
	}
	sorted := longFirst(all)
	if first := sorted[0].ImportPath; first != module+slow[0] {
		t.Errorf("first comes %s, want %s", first, slow[0])
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	pure, other := listed{ImportPath: module + raceless[0]}, listed{ImportPath: module + "/saga"}
	raced := func(p part) bool { return slices.Contains(p.flags, "-race") }

	if all := parts([]string{"-short"}, []listed{pure, other}); len(all) != 1 || len(all[0].packages) != 2 {
		t.Errorf("without the race detector, want one run with both, got %v", all)
	}
	all := parts([]string{"-race", "-short"}, []listed{pure, other})
	if len(all) != 2 || raced(all[0]) || !raced(all[1]) || all[0].packages[0].ImportPath != pure.ImportPath ||
		len(all[1].packages) != 1 || all[1].packages[0].ImportPath != other.ImportPath {
		t.Errorf("want %s without the race detector, and the other with it, got %v", pure.ImportPath, all)
	}
	both := listed{ImportPath: module + divided[0]}
	if all := parts([]string{"-race"}, []listed{both}); len(all) != 2 || raced(all[0]) || !raced(all[1]) {
		t.Errorf("want a run without the race detector and one with it, got %v", all)
	}
	models := listed{ImportPath: module + modelled[0]}
	if all := parts([]string{"-race"}, []listed{models}); len(all) != 2 || !raced(all[0]) || raced(all[1]) || !slices.Contains(all[1].flags, "-run=Model") {
		t.Errorf("want a run with the race detector and one of the models without it, got %v", all)
	}
	if all := parts([]string{"-race"}, []listed{other}); len(all) != 1 || !raced(all[0]) {
		t.Errorf("want one run with the race detector, got %v", all)
	}
	far := listed{ImportPath: module + "/itest/faults"}
	if all := parts([]string{"-race", "-short"}, []listed{far}); len(all) != 1 || !raced(all[0]) {
		t.Errorf("want one run with the race detector, got %v", all)
	}
	all = parts([]string{"-short", "-race=core"}, []listed{far, both, other})
	if len(all) != 2 || raced(all[0]) || !raced(all[1]) || !slices.Equal(paths(all[0].packages), paths([]listed{far, both})) ||
		!slices.Equal(paths(all[1].packages), paths([]listed{both, other})) {
		t.Errorf("want those that are not of the core without the race detector, got %v", all)
	}
	for _, p := range all {
		if slices.Contains(p.flags, coreOnly) {
			t.Errorf("go test knows no %s: %q", coreOnly, p.flags)
		}
	}
}

func paths(packages []listed) (out []string) {
	for _, p := range packages {
		out = append(out, p.ImportPath)
	}
	return out
}

func TestAffected(t *testing.T) {
	t.Parallel()
	pkg := func(dir string, imports ...string) listed {
		p := listed{Dir: "/r" + dir, ImportPath: module + dir, TestGoFiles: []string{"x_test.go"}}
		for _, i := range imports {
			p.Imports = append(p.Imports, module+i)
		}
		return p
	}
	all := []listed{
		pkg(""), pkg("/relay", ""), pkg("/store/postgres", "/relay"), pkg("/cmd/postrider", "/store/postgres"), pkg("/itest/docs"), pkg("/cmd/postrider/internal/cli/pages"),
		pkg("/cmd/postrider/internal/cli/commands"), pkg("/cmd/postrider/internal/cli/dead"),
		{Dir: "/r/store", ImportPath: module + "/store", Imports: []string{module + "/relay"}}, // has no tests
		{Dir: "/r/cmd/postrider/internal/cli/held", ImportPath: commandLine + "/held"},         // nor has this
	}
	tests := map[string]struct{ file, want []string }{
		"a package and its direct importers": {[]string{"/r/relay/relay.go"}, []string{"/relay", "/store/postgres"}},
		"what it embeds":                     {[]string{"/r/store/postgres/migrations/1.sql"}, []string{"/store/postgres", "/cmd/postrider"}},
		"documentation":                      {[]string{"/r/docs/relay.md"}, []string{"/itest/docs", "/cmd/postrider/internal/cli/pages"}},
		"documentation in a package":         {[]string{"/r/relay/README.md"}, []string{"/itest/docs", "/cmd/postrider/internal/cli/pages"}},
		"a command":                          {[]string{"/r/cmd/postrider/internal/cli/held/held.go"}, []string{"/cmd/postrider/internal/cli/commands"}},
		"a command with tests of its own":    {[]string{"/r/cmd/postrider/internal/cli/dead/list.go"}, []string{"/cmd/postrider/internal/cli/dead"}},
		"not a package's":                    {[]string{"/r/deploy/x.yaml", "/r/Makefile", "/elsewhere/y.go"}, nil},
		"the root package":                   {[]string{"/r/message.go"}, []string{"", "/relay"}},
		"its test data":                      {[]string{"/r/testdata/a/b.json"}, []string{"", "/relay"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			changed, importers := affected(all, tt.file)
			for _, p := range slices.Concat(changed, importers) {
				got = append(got, p.ImportPath[len(module):])
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestQuick(t *testing.T) {
	t.Parallel()
	pkg := func(path string) listed { return listed{ImportPath: module + path} }
	chosen, left := quick([]listed{pkg("/held"), pkg("/itest/docs"), pkg("/cmd/postrider/internal/backend"), pkg(slow[2]), pkg("/bench"), pkg("/config")})
	if len(chosen) != 2 || chosen[0].ImportPath != module+"/held" || chosen[1].ImportPath != module+"/config" {
		t.Errorf("chose %v", chosen)
	}
	if len(left) != 4 {
		t.Errorf("left %v, want the slow package and those of whole programs", left)
	}
}
