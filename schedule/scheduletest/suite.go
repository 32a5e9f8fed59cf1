// Package scheduletest is the conformance suite of the schedule.Store port: a case for every sentence of the port that says what a
// store does, with an explanation that is printed when it fails, and cases that end listeners between any two of their steps.
//
// An adapter's test makes a [Harness] for each case and calls [Run]:
//
//	func TestStore(t *testing.T) {
//		scheduletest.Run(t, func(t testing.TB) *scheduletest.Harness {
//			s := startServer(t)
//			return &scheduletest.Harness{
//				Open:     func(t testing.TB) scheduletest.Store { return connect(t, s) },
//				Promises: scheduletest.Promises{List: true, Pause: true, Durable: true},
//			}
//		})
//	}
//
// The suite closes all that it opens; the adapter's TestMain looks for goroutines that are left.
package scheduletest

import (
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// Run runs every case of the suite as a subtest of t. Each case calls open for a fresh schedule.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "schedules", Promises: suite.Promises(h.Promises)}
}

// testCase is one sentence of the port put to the test.
type testCase = suite.Case[*Harness, *world]

// need is what a case asks of the harness; it returns why the case cannot run, or "".
type need = func(h *Harness) string

func needsList(h *Harness) string {
	return suite.Unless(h.Promises.List, "the adapter does not promise List")
}

func needsPause(h *Harness) string {
	return suite.Unless(h.Promises.Pause, "the adapter does not promise Pause")
}

func needsWatch(h *Harness) string {
	return suite.Unless(h.Promises.Watch, "the adapter does not promise Watch")
}

func needsMend(h *Harness) string {
	return suite.Unless(h.Promises.Mend, "the adapter does not promise Mend")
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
	return slices.Concat(addCases(), dueCases(), claimCases(), leaseCases(), doneCases(), removeCases(), listCases(), pauseCases(),
		watchCases(), mendCases(), closeCases(), faultCases(), crashCases(), listenerCases())
}
