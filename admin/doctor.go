package admin

import (
	"context"
	"fmt"
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

// Doctor returns the report of all checks, those of the store and those of Config.Checks, which is made at most every ten seconds: of
// it, the results with one of the names, or in one of the areas such as "db", or all without names. Errors: ErrNotFound for a name that no
// check has.
func (s *Service) Doctor(ctx context.Context, p Principal, names []string) (doctor.Report, error) {
	if err := s.allow(ctx, p, "Doctor", ""); err != nil {
		return doctor.Report{}, err
	}
	report, err := s.examine(ctx)
	if err != nil {
		return report, err
	}
	if report = s.shownReport(p, report); len(names) == 0 {
		return report, nil
	}
	if report.Results, err = doctor.Named(report.Results, names); err != nil {
		return doctor.Report{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return report, nil
}

// examine returns the last report, or makes one. However many ask, one of them makes it.
func (s *Service) examine(ctx context.Context) (doctor.Report, error) {
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
	// Others wait for this report, and get it later: it does not end with the request of the first.
	checks := append(doctor.Checks(s.store), s.cfg.Checks...)
	report := doctor.Run(context.WithoutCancel(ctx), checks, doctor.Options{Command: s.cfg.Command})
	for i := range report.Results {
		if r := &report.Results[i]; r.Err != nil { // it may name hosts, accounts and values
			s.cfg.Logger.Warn("a check failed", "check", r.Check, "error", r.Err)
			r.Reason = "the check failed; the log of the process that serves this page has the error"
		}
	}
	e.mu.Lock()
	e.at, e.report = time.Now(), report
	e.mu.Unlock()
	return report, nil
}

// faults are those of the last report that the overview does not find by itself, in these relays.
func (s *Service) faults(relays []RelayInfo) (count int, problems []Problem) {
	s.examined.mu.Lock()
	defer s.examined.mu.Unlock()
	for _, f := range s.examined.report.Findings() {
		if f.Level != doctor.Fault {
			continue
		}
		down := strings.HasPrefix(f.Check, "destination") && slices.ContainsFunc(relays, func(r RelayInfo) bool { return r.Name == f.Target && r.Status == Down })
		if count++; !strings.HasPrefix(f.Check, "relay.") && !down {
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
		if _, err := s.examine(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
