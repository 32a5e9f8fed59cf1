// Package jobstest is the conformance suite of the jobs.Store port. It has a case for every
// sentence of the port about a store, with an explanation that is printed when the case fails.
//
// An adapter's test creates a [Harness] for each case and calls [Run]:
//
//	func TestStore(t *testing.T) {
//		jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
//			db := newDatabase(t)
//			return &jobstest.Harness{
//				Open:     func(t testing.TB) jobs.Store { return connect(t, db) },
//				Promises: jobstest.Promises{Take: true, Drop: true, Durable: true},
//			}
//		})
//	}
//
// The suite closes all stores that it opens. The adapter's TestMain checks for leaked goroutines.
package jobstest

import (
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// Run runs every case of the suite as a subtest of t. It calls open once for each case, which gets
// a new database.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

// about returns the description of the run for its report: the file, the port and the promises of
// h.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "jobs", Promises: suite.Promises(h.Promises)}
}

// testCase is a test of one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need returns why a case cannot run with a harness, or "".
type need = func(h *Harness) string

// needsParallel returns a reason unless the adapter promises Parallel.
func needsParallel(h *Harness) string {
	return suite.Unless(h.Promises.Parallel, "the adapter does not promise Parallel")
}

// needsTake returns a reason unless the adapter promises Take.
func needsTake(h *Harness) string {
	return suite.Unless(h.Promises.Take, "the adapter does not promise Take")
}

// needsDrop returns a reason unless the adapter promises Drop.
func needsDrop(h *Harness) string {
	return suite.Unless(h.Promises.Drop, "the adapter does not promise Drop")
}

// needsWeigh returns a reason unless the adapter promises Weigh.
func needsWeigh(h *Harness) string {
	return suite.Unless(h.Promises.Weigh, "the adapter does not promise Weigh")
}

// needsDurable returns a reason unless the adapter promises Durable.
func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

// needsSever returns a reason if the harness has no Sever.
func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

// needsRestart returns a reason if the harness has no Restart.
func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

// needsDown returns a reason if the harness has no Down.
func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(updateCases(), randomCases(), lockCases(), viewCases(), saveCases(), findCases(), dueCases(), lineCases(), takeCases(), dropCases(), comingCases(),
		watchCases(), answerCases(), closeCases(), faultCases())
}
