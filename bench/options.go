package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
)

// options are the command-line options.
type options struct {
	messages, rounds int
	quick            bool
	only, rows       *regexp.Regexp

	jsonFile, charts, cpu   string
	pages                   []string
	check, writeBaseline    bool
	baseline                string
	dir                     string
	postgres, nats, natsBin string
	temporal                string
}

// parse parses the command line. Its error names the problem; usage goes to w.
func parse(args []string, w io.Writer) (options, error) {
	var o options
	var only, rows string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(w)
	f.IntVar(&o.messages, "messages", 33_000, "`n` messages in a run")
	f.IntVar(&o.rounds, "rounds", 9, "`n` rounds; in each, the rows of a suite are run in turn. Suites whose runs take long have a third, of three times the messages")
	f.BoolVar(&o.quick, "quick", false, "few messages, one round, no large backlogs: to see that it works, not to compare")
	f.StringVar(&only, "run", "", "only suites whose name matches this `regexp`")
	f.StringVar(&rows, "rows", "", "only rows whose name matches this `regexp`")
	f.StringVar(&o.jsonFile, "json", "", "write the report to this `file`")
	f.Func("page", "write the figures into the tables of this `file` (docs/performance.md) that \"<!-- bench: suite -->\" precedes; may be repeated",
		func(file string) error { o.pages = append(o.pages, file); return nil })
	f.StringVar(&o.charts, "charts", "", "write a chart (SVG) of each suite to this `folder`")
	f.StringVar(&o.cpu, "cpuprofile", "", "write a processor profile of the runs, of this process, to this `file`; best with -run and one suite")
	f.BoolVar(&o.check, "check", false, "fail if a ratio is more than 15% worse than the baseline's")
	f.BoolVar(&o.writeBaseline, "write-baseline", false, "make the ratios of this run the baseline")
	f.StringVar(&o.baseline, "baseline", "bench/baseline.json", "the `file` of the baseline")
	f.StringVar(&o.dir, "dir", "", "make the temporary folder in this `folder`, e.g. on another disk")
	f.StringVar(&o.postgres, "postgres", "", "use the server at this `URL` (a superuser's) instead of a private one; its processor time is not seen then")
	f.StringVar(&o.nats, "nats", "", "use the NATS server at this `URL` instead of a private one")
	f.StringVar(&o.natsBin, "nats-server", "", "`path` of nats-server (default: POSTRIDER_TEST_NATS_BIN, .cache/bin/nats-server, or in PATH)")
	f.StringVar(&o.temporal, "temporal", "", "`path` of the program of bench/temporal, which then is a peer of sagas; make temporal builds it")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	if f.NArg() > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if o.messages < 1000 || o.rounds < 1 {
		faults = append(faults, errors.New("-messages must be 1,000 or more, -rounds 1 or more"))
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		faults = append(faults, fmt.Errorf("-run: %w", err))
	}
	if o.rows, err = regexp.Compile(rows); err != nil {
		faults = append(faults, fmt.Errorf("-rows: %w", err))
	}
	if o.quick {
		o.messages, o.rounds = min(o.messages, 10_000), 1
	}
	return o, errors.Join(faults...)
}
