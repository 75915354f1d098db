package admin

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/doctor"
)

const (
	// checkedFor is how long a report serves everybody who asks.
	checkedFor = 10 * time.Second
	// checkEvery is the time between two reports of Run.
	checkEvery = time.Minute
)

// examined is the last report of all checks.
type examined struct {
	turn chan struct{} // has room for one: whoever makes a report

	mu     sync.Mutex
	at     time.Time
	report doctor.Report
}

// Doctor makes the checks of the store, and those of Config.Checks: those with one of the names, or in one of the areas such as "db",
// or all without names. A report of all of them is made at most every ten seconds. Errors: ErrInput for a name that no check has.
func (s *Service) Doctor(ctx context.Context, p Principal, names []string) (doctor.Report, error) {
	if err := s.allow(ctx, p, "Doctor", ""); err != nil {
		return doctor.Report{}, err
	}
	checks := append(doctor.Checks(s.store), s.cfg.Checks...)
	if len(names) == 0 {
		return s.examine(ctx, checks)
	}
	chosen, err := chooseChecks(checks, names)
	if err != nil {
		return doctor.Report{}, err
	}
	return doctor.Run(ctx, chosen, doctor.Options{Command: s.cfg.Command}), nil
}

// chooseChecks returns the checks with one of the names, or in one of the areas.
func chooseChecks(checks []doctor.Check, names []string) (out []doctor.Check, err error) {
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(checks), func(c doctor.Check) bool { return c.Name != name && !strings.HasPrefix(c.Name, name+".") })
		if len(found) == 0 {
			known := make([]string, len(checks))
			for i, c := range checks {
				known[i] = c.Name
			}
			return nil, wrongInput("there is no check %q; there are %s", name, strings.Join(known, ", "))
		}
		out = append(out, found...)
	}
	return out, nil
}

// examine returns the last report, or makes one. However many ask, one of them makes it.
func (s *Service) examine(ctx context.Context, checks []doctor.Check) (doctor.Report, error) {
	e := &s.examined
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return doctor.Report{}, ctx.Err()
	}
	e.mu.Lock()
	at, last := e.at, e.report
	e.mu.Unlock()
	if time.Since(at) < checkedFor {
		return last, nil
	}
	// Others wait for this report: it does not end with the request of the first, but with its deadline.
	o := doctor.Options{Command: s.cfg.Command}
	if ends, ok := ctx.Deadline(); ok {
		o.Total = max(time.Until(ends), time.Nanosecond)
	}
	report := doctor.Run(context.WithoutCancel(ctx), checks, o)
	e.mu.Lock()
	e.at, e.report = time.Now(), report
	e.mu.Unlock()
	return report, nil
}

// faults are those of the last report that the overview does not find by itself.
func (s *Service) faults() (count int, problems []Problem) {
	s.examined.mu.Lock()
	defer s.examined.mu.Unlock()
	for _, f := range s.examined.report.Findings() {
		if f.Level != doctor.Fault {
			continue
		}
		if count++; !strings.HasPrefix(f.Check, "relay.") {
			problems = append(problems, Problem{
				Tone: Bad, Status: "Fault", Text: strings.TrimSuffix(f.Message, "."), Detail: f.Impact, Path: "/health", Button: "Open health",
			})
		}
	}
	return count, problems
}

// runChecks makes a report each minute until ctx ends.
func (s *Service) runChecks(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		if _, err := s.examine(ctx, append(doctor.Checks(s.store), s.cfg.Checks...)); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
