// Package eventstest is the conformance suite of the events port: a case for every sentence of package events that says
// what a bus does, with an explanation that is printed when it fails.
//
// An adapter's test makes a [Harness] for each case and calls [Run]:
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
// The suite closes all that it opens; the adapter's TestMain looks for goroutines that are left.
package eventstest

import (
	"slices"
	"testing"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// Run runs every case of the suite as a subtest of t. Each case calls open for a fresh namespace.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

// about says where a run with h is reported, and as what.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "events", Promises: suite.Promises(struct{ Retain bool }{h.Retain != nil})}
}

// testCase is one sentence of the port put to the test.
type testCase = suite.Case[*Harness, *world]

// need is what a case asks of the harness; it returns why the case cannot run, or "".
type need = func(h *Harness) string

func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

func needsRetain(h *Harness) string {
	return suite.Unless(h.Retain != nil, "the adapter keeps no events")
}

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(fanoutCases(), contentCases(), flowCases(), closeCases(), faultCases(),
		retainCases(), retainBoundCases(), retainFaultCases())
}
