// Package doctor says what is wrong with an outbox, or soon will be, why it matters, and what fixes it.
//
//	report := doctor.Run(ctx, doctor.Checks(store), doctor.Options{})
//	for _, finding := range report.Findings() {
//		log.Println(finding.Message, finding.Fix)
//	}
//
// Checks only read, and each of them has a limited time. What they cannot find out is not passed: it is CouldNotCheck, with the reason
// and, if a right is missing, the statement that grants it. A check that has no meaning for a store is left out.
//
// Stores bring the checks of their database ([Checker]). [Checks] adds those that every store answers through its status.
package doctor
