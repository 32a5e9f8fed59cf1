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

// Run runs every case of the suite as a subtest of t. Each case calls open for a new database.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "jobs", Promises: suite.Promises(h.Promises)}
}

// testCase is a test of one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need returns why a case cannot run with a harness, or "".
type need = func(h *Harness) string

func needsParallel(h *Harness) string {
	return suite.Unless(h.Promises.Parallel, "the adapter does not promise Parallel")
}

func needsTake(h *Harness) string {
	return suite.Unless(h.Promises.Take, "the adapter does not promise Take")
}

func needsDrop(h *Harness) string {
	return suite.Unless(h.Promises.Drop, "the adapter does not promise Drop")
}

func needsWeigh(h *Harness) string {
	return suite.Unless(h.Promises.Weigh, "the adapter does not promise Weigh")
}

func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(updateCases(), randomCases(), lockCases(), viewCases(), saveCases(), findCases(), dueCases(), lineCases(), takeCases(), dropCases(), comingCases(),
		watchCases(), answerCases(), closeCases(), faultCases())
}
