// Package scheduletest is the conformance suite of the schedule.Store port. It has a case for each
// sentence of the port, with an explanation that is printed on failure. Other cases crash listeners
// between any two of their calls.
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
// The suite closes all stores that it opens. The adapter's TestMain checks for leaked goroutines.
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

// about returns the facts about the adapter that the report of the suite needs.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "schedules", Promises: suite.Promises(h.Promises)}
}

// testCase tests one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need checks whether the harness supports a case. It returns the reason for skipping the case, or
// "".
type need = func(h *Harness) string

// needsList is the [need] of cases that call the methods of schedule.Lister.
func needsList(h *Harness) string {
	return suite.Unless(h.Promises.List, "the adapter does not promise List")
}

// needsPause is the [need] of cases that pause entries.
func needsPause(h *Harness) string {
	return suite.Unless(h.Promises.Pause, "the adapter does not promise Pause")
}

// needsWatch is the [need] of cases that call Watch.
func needsWatch(h *Harness) string {
	return suite.Unless(h.Promises.Watch, "the adapter does not promise Watch")
}

// needsRepair is the [need] of cases that search for entries without a due time.
func needsRepair(h *Harness) string {
	return suite.Unless(h.Promises.Repair, "the adapter does not promise Repair")
}

// needsDurable is the [need] of cases that read entries after a restart of the server.
func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

// needsSever is the [need] of cases that sever connections.
func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

// needsRestart is the [need] of cases that restart the server.
func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

// needsDown is the [need] of cases without a server.
func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// cases returns all cases of the suite, grouped by area.
func cases() []testCase {
	return slices.Concat(addCases(), dueCases(), claimCases(), leaseCases(), doneCases(), removeCases(), listCases(), pauseCases(),
		watchCases(), repairCases(), changeCases(), modelCases(), addTxCases(), closeCases(), faultCases(), crashCases(), listenerCases(), redeployCases())
}
