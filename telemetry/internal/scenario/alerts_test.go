package scenario_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/telemetry/internal/scenario"
)

// TestAlertsUnderFaults: each alert fires under its fault and at no other time, and ends after what its runbook says. No alert fires for a
// relay that is paused, or whose processes are replaced one by one, and none says that a relay with a closed gate is stalled. Time is
// virtual, and that of the alerts is not shortened.
func TestAlertsUnderFaults(t *testing.T) {
	t.Parallel()
	r := newRecording(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		w, second := newWorld(t), newWorld(t)
		s := scenario.Start(t, w.config(6*time.Second))
		s.Watch(second.Telemetry)
		time.Sleep(time.Minute) // until the store knows all relays
		faults := s.Faults()
		r.scrape(20*time.Minute, w, second)
		r.wantFired(faults, false)
		provoke(faults)
		r.scrape(70*time.Minute, w, second)
		r.wantFired(faults, true)
		fix(faults)
		r.scrape(time.Hour, w, second)
		r.wantEnded(faults)
		r.wantSilence(faults)

		absent := []scenario.Fault{{Alerts: []scenario.Alert{{Name: "PostriderAbsent"}}}}
		r.wantFired(absent, false)
		r.scrape(15 * time.Minute)
		r.wantFired(absent, true)
		r.scrape(15*time.Minute, w, second)
		r.wantEnded(absent)
		w.wantMapped(r.seen)
		w.wantFields()
		wantAll(t, slices.Concat(faults, absent, s.SlowFaults()))
	})
	r.check(t)
}

var alertNames = regexp.MustCompile(`- alert: (\w+)`)

// wantAll checks that there is a fault for each alert.
func wantAll(t *testing.T, faults []scenario.Fault) {
	t.Helper()
	tested := make(map[string]bool)
	for _, f := range faults {
		for _, a := range f.Alerts {
			tested[a.Name] = true
		}
	}
	for _, m := range alertNames.FindAllStringSubmatch(readFile(t, rulesFile), -1) {
		switch {
		case tested[m[1]]:
		case m[1] == "PostriderDiskFilling":
			t.Log("PostriderDiskFilling was not provoked: this user may not mount a file system")
		default:
			t.Errorf("no fault provokes %s", m[1])
		}
	}
}

// TestSlowBurn: the alert of a service that is late a little too often ends hours later.
func TestSlowBurn(t *testing.T) {
	t.Parallel()
	r := newRecording(t, 4*time.Minute)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := scenario.StartSmall(t, w.config(time.Minute))
		late := s.SlowFaults()[:1]
		r.scrape(20*time.Minute, w)
		provoke(late)
		r.scrape(time.Hour, w)
		r.wantFired(late, true)
		fix(late)
		r.scrape(7*time.Hour, w)
		r.wantEnded(late)
	})
	r.check(t)
}

// TestDeadLetterIsLeft: the alert fires after a day.
func TestDeadLetterIsLeft(t *testing.T) {
	t.Parallel()
	r := newRecording(t, 4*time.Minute)
	r.evaluated = r.every
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := scenario.StartSmall(t, w.config(time.Minute))
		left := s.SlowFaults()[1:]
		r.scrape(20*time.Minute, w)
		provoke(left)
		r.scrape(20*time.Hour, w)
		r.wantFired(left, false)
		r.scrape(5*time.Hour, w)
		r.wantFired(left, true)
		fix(left)
		r.scrape(20*time.Minute, w)
		r.wantEnded(left)
	})
	r.check(t)
}

func provoke(faults []scenario.Fault) {
	for _, f := range faults {
		f.Provoke()
	}
}

func fix(faults []scenario.Fault) {
	for _, f := range faults {
		if f.Fix != nil {
			f.Fix()
		}
	}
}

// of is the part of a query that selects an alert that fires.
func of(a scenario.Alert) string {
	selected := []string{`alertstate="firing"`}
	if a.Name != "" {
		selected = append(selected, fmt.Sprintf("alertname=%q", a.Name))
	}
	if a.Label != "" {
		selected = append(selected, fmt.Sprintf("%s=%q", a.Label, a.Value))
	}
	return "ALERTS{" + strings.Join(selected, ",") + "}"
}

// wantFired says whether alerts have fired.
func (r *recording) wantFired(faults []scenario.Fault, fired bool) {
	for _, f := range faults {
		for _, a := range f.Alerts {
			r.want("count_over_time("+of(a)+"[2d])", fired)
		}
	}
}

// wantEnded says that no alert fires now.
func (r *recording) wantEnded(faults []scenario.Fault) {
	for _, f := range faults {
		for _, a := range f.Alerts {
			r.want(of(a), false)
		}
	}
}

// wantSilence says that no alert has fired under what operators do.
func (r *recording) wantSilence(faults []scenario.Fault) {
	for _, f := range faults {
		if f.Silent != (scenario.Alert{}) {
			r.want("count_over_time("+of(f.Silent)+"[2d])", false)
		}
	}
}
