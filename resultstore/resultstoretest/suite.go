// Package resultstoretest is the conformance suite of the resultstore port. It has a case for every
// sentence of package resultstore about the behaviour of a store. A failing case prints its
// explanation.
//
// The test of an adapter makes a [Harness] for each case and calls [Run]:
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
// The suite closes all stores that it opens. The TestMain of the adapter checks for leaked
// goroutines.
package resultstoretest

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
	return suite.About{File: h.Report, Port: "results", Promises: suite.Promises(h.Promises)}
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

// needsRecords returns the reason to skip a case, or "" if the store keeps records: it does not
// promise RepliesOnly.
func needsRecords(h *Harness) string {
	return suite.Unless(!h.Promises.RepliesOnly, "the adapter keeps no records")
}

// needsReplies returns the reason to skip a case, or "" if the store is a reply queue: it promises
// RepliesOnly.
func needsReplies(h *Harness) string {
	return suite.Unless(h.Promises.RepliesOnly, "the adapter is no reply queue")
}

// needsNotify returns the reason to skip a case, or "" if the adapter promises Notify.
func needsNotify(h *Harness) string {
	return suite.Unless(h.Promises.Notify, "the adapter does not promise Notify")
}

// needsDurable returns the reason to skip a case, or "" if the adapter promises Durable.
func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

// needsTTL returns the reason to skip a case, or "" if the adapter promises a TTL.
func needsTTL(h *Harness) string {
	return suite.Unless(h.Promises.TTL > 0, "the adapter promises no TTL")
}

// needsMaxResult returns the reason to skip a case, or "" if the adapter promises a MaxResult.
func needsMaxResult(h *Harness) string {
	return suite.Unless(h.Promises.MaxResult > 0, "the adapter promises no MaxResult")
}

// cases returns every case of the suite in the order of their areas.
func cases() []testCase {
	return slices.Concat(recordCases(), batchCases(), fenceCases(), expireCases(), notifyCases(), gatherCases(), claimCases(), swapCases(), checkpointCases(), transactionCases(), closeCases(), faultCases())
}
