// Package scenario is a small system under constant load, with faults that can be provoked and fixed. Together, the faults make each of
// the shipped alerts fire. The tests of alerts and dashboards use it, and so does the program in the folder run.
package scenario

import "context"

// TB is what a scenario needs of a testing.TB.
type TB interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(f func())
	Error(args ...any)
	Fatal(args ...any)
}

// Alert is one that a fault makes fire: its name, and one of its labels.
type Alert struct{ Name, Label, Value string }

// Fault is something that goes wrong, or that an operator does.
type Fault struct {
	Name string
	// Alerts fire while the fault lasts, and end when it is fixed.
	Alerts []Alert
	// Silent is an alert that does not fire meanwhile; without a Name, any with the label.
	Silent Alert
	// Provoke begins the fault. Fix ends it as the runbook says; nil if there is nothing to do but to wait.
	Provoke, Fix func()
}

// Faults returns all faults of the system.
func (s *System) Faults() []Fault {
	faults := append(s.deliveryFaults(), s.consumerFaults()...)
	faults = append(append(faults, s.auditFault()), s.sagas.faults()...)
	if s.disk != nil {
		faults = append(faults, Fault{
			Name: "disk", Alerts: []Alert{{"PostriderDiskFilling", "store", mainStore}}, Provoke: s.disk.fill, Fix: s.disk.clear,
		})
	}
	return append(faults, s.silences()...)
}

// must fails the scenario if there is an error.
func must(tb TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
