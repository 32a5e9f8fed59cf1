// Package eventstest is the conformance suite of the events port. It has a case for every sentence
// of package events about the behaviour of a bus. A failing case prints its explanation.
//
// The test of an adapter makes a [Harness] for each case and calls [Run]:
//
//	func TestBus(t *testing.T) {
//		eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
//			s := startServer(t)
//			return &eventstest.Harness{
//				Open: func(t testing.TB) events.EventBus { return connect(t, s) },
//			}
//		})
//	}
//
// The suite closes all buses that it opens. The TestMain of the adapter checks for leaked
// goroutines.
package eventstest

import (
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// Run runs every case of the suite as a subtest of t. It calls open once for each case to get a
// fresh namespace.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

// about returns the report file of h and the promises that the report lists.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "events", Promises: suite.Promises(struct{ Retain bool }{h.Retain != nil})}
}

// testCase tests one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need checks whether the harness supports a case. It returns the reason to skip the case, or "".
type need = func(h *Harness) string

// needsSever returns the reason to skip a case, or "" if the harness has Sever.
func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

// needsRestart returns the reason to skip a case, or "" if the harness has Restart.
func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

// needsDown returns the reason to skip a case, or "" if the harness has Down.
func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// needsRetain returns the reason to skip a case, or "" if the harness has Retain.
func needsRetain(h *Harness) string {
	return suite.Unless(h.Retain != nil, "the adapter keeps no events")
}

// cases returns every case of the suite in the order of their areas.
func cases() []testCase {
	return slices.Concat(fanoutCases(), contentCases(), flowCases(), closeCases(), faultCases(),
		retainCases(), retainBoundCases(), retainFaultCases())
}
