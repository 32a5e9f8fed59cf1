// Package resultstoretest is the conformance suite of the resultstore port: a case for every sentence of package
// resultstore that says what a store does, with an explanation that is printed when it fails.
//
// An adapter's test makes a [Harness] for each case and calls [Run]:
//
//	func TestStore(t *testing.T) {
//		resultstoretest.Run(t, func(t testing.TB) *resultstoretest.Harness {
//			s := startServer(t)
//			return &resultstoretest.Harness{
//				Open:     func(t testing.TB) resultstore.ResultStore { return connect(t, s) },
//				Promises: resultstoretest.Promises{Notify: true, Durable: true},
//			}
//		})
//	}
//
// The suite closes all that it opens; the adapter's TestMain looks for goroutines that are left.
package resultstoretest

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
	return suite.About{File: h.Report, Port: "results", Promises: suite.Promises(h.Promises)}
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

func needsRecords(h *Harness) string {
	return suite.Unless(!h.Promises.RepliesOnly, "the adapter keeps no records")
}

func needsReplies(h *Harness) string {
	return suite.Unless(h.Promises.RepliesOnly, "the adapter is no reply queue")
}

func needsNotify(h *Harness) string {
	return suite.Unless(h.Promises.Notify, "the adapter does not promise Notify")
}

func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

func needsTTL(h *Harness) string {
	return suite.Unless(h.Promises.TTL > 0, "the adapter promises no TTL")
}

func needsMaxResult(h *Harness) string {
	return suite.Unless(h.Promises.MaxResult > 0, "the adapter promises no MaxResult")
}

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(recordCases(), fenceCases(), expireCases(), notifyCases(), gatherCases(), claimCases(), closeCases(), faultCases())
}
