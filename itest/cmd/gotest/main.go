// Gotest runs go test and summarizes the results: a line for each package, the output of failures, the names of skipped
// tests, and at the end, alone on its line,
//
//	123 passed, 0 failed
//
// The arguments are flags of go test followed by packages, "work" for all. Flags need the form -name=value. With -race, packages
// that the detector would not help run without it, at the same time as the others; with -race=core, only those that run goroutines
// of their own for others run under it. Slow packages start first, so that none of them runs alone at the end. A few tests that failed run a second time, alone, and are named if they pass then (retry.go says which may).
// The exit code is not 0 if anything else failed, or if no test ran at all.
//
//	gotest -changed main [-list] [flag ...]
//
// tests the packages whose files differ from a Git revision, including new files, and the packages that import one of
// these; with -list, it prints them instead. It succeeds when there are none. With -short, it leaves out the importers that are slow or
// test whole programs, and names them.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
)

func main() {
	good, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

func run(args []string) (good bool, err error) {
	revision := ""
	if len(args) > 1 && args[0] == "-changed" {
		revision, args = args[1], args[2:]
	}
	listOnly := slices.Contains(args, "-list")
	args = slices.DeleteFunc(args, func(a string) bool { return a == "-list" })
	flags, patterns := args, []string{"work"}
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		flags, patterns = args[:i], args[i:]
	}
	all, err := list(patterns)
	if err != nil {
		return false, err
	}
	var left []listed
	if revision != "" {
		files, err := changedFiles(revision)
		if err != nil {
			return false, err
		}
		changed, importers := affected(all, files)
		if slices.Contains(flags, "-short") {
			importers, left = quick(importers)
		}
		all = slices.Concat(changed, importers)
	}
	if listOnly {
		for _, p := range all {
			fmt.Println(p.ImportPath)
		}
		return true, nil
	}
	for _, p := range left {
		fmt.Println("left to make test:", p.ImportPath)
	}
	if revision != "" && len(all) == 0 {
		fmt.Printf("no package with tests to run differs from %s\n", revision)
		return true, nil
	}
	return test(flags, longFirst(all))
}

// test runs the packages' tests and prints the summary.
func test(flags []string, packages []listed) (good bool, err error) {
	results := newSummary(os.Stdout)
	if err := together(parts(flags, packages), results); err != nil {
		return false, err
	}
	err = results.runAgain(func(chosen []string, packages []listed, second *summary) error {
		for _, part := range parts(flags, packages) {
			part.flags, part.packages = slices.Concat(part.flags, chosen), packages
			if err := part.run(second); err != nil {
				return err
			}
		}
		return nil
	})
	return results.close() && err == nil, err
}

// together runs the parts at the same time: while the tests of one wait, for a lease to end or a server to start, those of the other
// have the processors, and what one compiles overlaps what the other runs.
func together(all []part, results *summary) error {
	each, errs := make([]*summary, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	for i, p := range all {
		each[i] = results.sibling()
		running.Go(func() { errs[i] = p.run(each[i]) })
	}
	running.Wait()
	for _, one := range each {
		results.include(one)
	}
	return errors.Join(errs...)
}

// run runs go test once. Failed tests are not an error: they are in results.
func (p part) run(results *summary) error {
	args := slices.Concat([]string{"test", "-json"}, p.flags)
	for _, tested := range p.packages {
		args = append(args, tested.ImportPath)
	}
	cmd := exec.Command("go", args...)
	// Without the first, each program sleeps a second before it ends. With the second, the compiler needs a third less time, and more
	// memory.
	cmd.Env = slices.Concat([]string{"GORACE=atexit_sleep_ms=0", "GOGC=400"}, os.Environ(), p.env)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := results.failed
	results.read(events)
	err = cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		if results.failed == failed {
			results.add(event{Action: "build-fail", Package: "go test"}) // it ended without naming a failure
		}
		return nil
	}
	return err
}

// part is one run of go test.
type part struct {
	flags, env []string
	packages   []listed
}

// raceless are packages in whose tests the race detector would find nothing: those without goroutines and locks, some of which explore
// every state; those that read source files or build programs; those that drive a browser, programs of other languages or third-party
// libraries; those whose relays and consumers are processes that are killed, whose reports of races nobody would read; and commands that
// print what a store says and end. These tests would take many times as long. The scenario of alerts and the example shop run relays,
// consumers and engines in long tests; their own tests, and some of the demo shop, run under the detector.
var raceless = slices.Concat([]string{
	"/relay/internal/schedule", "/saga/sagatest", "/saga/internal/machine", "/internal/archtest", "/itest/crash", "/itest/release", "/itest/docs",
	"/itest/deploy", "/itest/languages", "/itest/libraries", "/itest/web", "/bench/internal/report", "/examples/stacks",
	"/examples/shop", "/telemetry/internal/scenario", "/cmd/postrider/internal/cli",
}, commands("commands", "dead", "demo", "mcp", "output", "pages", "program", "publish", "redrive", "starter", "status"))

// core are the packages under the detector with -race=core: those whose own goroutines meet those of their users, and each store's and
// broker's. The others use goroutines of these, or one to serve requests; under the detector they take as long as these together.
var core = []string{
	"", "/relay", "/inbox", "/inbox/guard", "/saga", "/outbox", "/admin", "/resilience", "/postridertest", "/telemetry", "/internal/signal",
	"/internal/protect", "/internal/stored", "/store/memory", "/store/postgres", "/store/mysql", "/store/sqlite", "/itest/mysql",
	"/itest/sqlite", "/broker/brokertest", "/broker/kafka", "/broker/memory", "/broker/nats", "/broker/rabbitmq", "/broker/redis", "/broker/webhook",
}

// divided are packages that run both with and without the race detector. Build tags leave out the tests that need it not.
var divided = []string{"/itest/sqlite", "/itest/mysql", "/store/postgres", "/cmd/postrider/internal/shopdemo"}

// modelled are packages whose model tests run both with the race detector, a part of their histories, and without it, all of them. The other
// tests of these packages run with it only.
var modelled = []string{"/relay", "/store/memory"}

func commands(names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, "/cmd/postrider/internal/cli/"+name)
	}
	return paths
}

// What was compiled does not depend on the folder, so that another clone need not compile it again. Without C, tests share it with the
// programs too (make programs).
var anywhere, withoutC = []string{"-trimpath"}, []string{"CGO_ENABLED=0"}

// coreOnly is the flag that limits the race detector to core.
const coreOnly = "-race=core"

// parts divides the packages between one run without the race detector and one with it, if the flags have it.
func parts(flags []string, packages []listed) []part {
	limited := slices.Contains(flags, coreOnly)
	if limited {
		flags = slices.Clone(flags)
		flags[slices.Index(flags, coreOnly)] = "-race"
	}
	if !slices.Contains(flags, "-race") {
		return []part{{append(sharing(flags, 3), anywhere...), withoutC, packages}}
	}
	var without, with, models []listed
	for _, p := range packages {
		path, inside := strings.CutPrefix(p.ImportPath, module)
		alone := inside && (slices.Contains(raceless, path) || limited && !slices.Contains(core, path))
		both := inside && slices.Contains(divided, path)
		if alone || both {
			without = append(without, p)
		}
		if !alone {
			with = append(with, p)
		}
		if inside && slices.Contains(modelled, path) {
			models = append(models, p)
		}
	}
	plain := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "-race" })
	all := []part{{append(sharing(plain, 2), anywhere...), withoutC, without}, {append(sharing(flags, 3), anywhere...), nil, with},
		{append(sharing(plain, 1), slices.Concat(anywhere, []string{"-run=Model"})...), withoutC, models}}
	return slices.DeleteFunc(all, func(p part) bool { return len(p.packages) == 0 })
}

// engine is SQLite, translated from C to Go. It is many times slower under the race detector and need not be checked
// here. The driver above it stays in the detector: it instantiates generic types of the standard library, of which the
// linker keeps one copy for all, and with a copy outside the detector, data passed through a sync.Map would count as a
// race.
var engine = []string{"modernc.org/sqlite/lib", "modernc.org/libc", "modernc.org/memory"}

// sharing adds flags for tests that mostly wait for servers: more packages at a time than processors, and no go vet, which make
// check runs by itself.
func sharing(flags []string, packages int) []string {
	added := []string{"-p=" + strconv.Itoa(packages), "-vet=off"}
	if slices.Contains(flags, "-race") {
		for _, path := range engine {
			added = append(added, "-gcflags="+path+"=-race=false")
		}
	}
	return append(added, flags...)
}
