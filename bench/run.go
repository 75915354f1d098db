package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/bench/internal/report"
)

// tolerance is how far a ratio may fall below the baseline's.
const tolerance = 0.15

// run measures the selected suites and writes the requested output. The figures go to out, progress to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	if len(args) > 0 && childCommands[args[0]] != nil {
		return runChild(ctx, childCommands[args[0]], args[1:], out)
	}
	o, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	w, err := newWorld(o, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	stop, err := profile(o.cpu)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	r := &report.Report{Started: time.Now().UTC(), Rounds: o.rounds}
	for _, s := range suites {
		if !o.only.MatchString(s.name) || s.slow && o.quick {
			continue
		}
		measured, err := measure(ctx, w, &s)
		if errors.Is(err, errMissing) {
			fmt.Fprintf(progress, "%s: skipped: %v\n", s.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("suite %s: %w", s.name, err)
		}
		r.Suites = append(r.Suites, measured)
		if err := measured.Print(progress); err != nil {
			return err
		}
	}
	if len(r.Suites) == 0 {
		return fmt.Errorf("-run %s matches none of the suites that can run here: %s", o.only, strings.Join(suiteNames(), ", "))
	}
	if err := w.describe(ctx, r); err != nil {
		return err
	}
	r.Promises = r.Judge(promises)
	return errors.Join(r.Print(out), write(o, r, out))
}

// profile starts a CPU profile if a file is given.
func profile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	stop = func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}
	return stop, pprof.StartCPUProfile(f)
}

// measure runs the rows of a suite in turn, round by round, each round starting with another row.
func measure(ctx context.Context, w *world, s *suite) (*report.Suite, error) {
	messages, rounds := w.options.size(s)
	b := &bundle{world: w, n: messages}
	defer b.cleanUp()
	fmt.Fprintf(w.progress, "%s: preparing\n", s.name)
	entries, err := s.setup(ctx, b)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return !w.options.rows.MatchString(e.name) })
	measured := &report.Suite{Name: s.name, Title: s.title, Figure: s.figure, Unit: s.unit, Lower: s.lower, Messages: b.n, Also: s.also}
	for _, e := range entries {
		row := &report.Row{Name: e.name, Role: e.role, Limit: e.limit, Peer: e.peer}
		if e.quoted > 0 {
			row.Runs = []report.Figures{{s.figure: e.quoted}}
		}
		measured.Rows = append(measured.Rows, row)
	}
	for round := range rounds {
		for i := range entries {
			at := (i + round) % len(entries)
			if entries[at].quoted > 0 {
				continue
			}
			figures, err := b.observe(ctx, &entries[at])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", entries[at].name, err)
			}
			row := measured.Rows[at]
			row.Runs = append(row.Runs, figures)
			fmt.Fprintf(w.progress, "%s: round %d of %d: %s: %s %s\n", s.name, round+1, rounds, row.Name,
				report.Number(figures[s.figure]), s.unit)
		}
	}
	return measured, nil
}

// write writes the requested files and compares with the baseline.
func write(o options, r *report.Report, out io.Writer) error {
	var errs []error
	if o.jsonFile != "" {
		errs = append(errs, writeJSON(o.jsonFile, r))
	}
	for _, page := range o.pages {
		errs = append(errs, updatePage(page, r))
	}
	if o.charts != "" {
		errs = append(errs, os.MkdirAll(o.charts, 0o755))
		for _, s := range r.Suites {
			errs = append(errs, writeChart(filepath.Join(o.charts, s.Name+".svg"), s))
		}
	}
	if o.writeBaseline {
		errs = append(errs, writeJSON(o.baseline, r.Ratios()))
	}
	if o.check {
		errs = append(errs, check(o.baseline, r, out))
	}
	return errors.Join(errs...)
}

// check fails if a ratio has fallen.
func check(file string, r *report.Report, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	baseline, err := report.ReadBaseline(text)
	if err != nil {
		return err
	}
	worse, compared := r.Regressions(baseline, tolerance)
	fmt.Fprintf(out, "\n%d ratios compared with %s\n", compared, file)
	if compared == 0 {
		return fmt.Errorf("nothing to compare with %s; write a new one with -write-baseline", file)
	}
	if len(worse) > 0 {
		return fmt.Errorf("more than %.0f%% worse than %s:\n  %s", 100*tolerance, file, strings.Join(worse, "\n  "))
	}
	return nil
}

func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func updatePage(file string, r *report.Report) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	updated, err := r.Update(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(updated), 0o644)
}

func writeChart(file string, s *report.Suite) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return s.SVG(f)
}
