package brokertest

import (
	"slices"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// testCase tests one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need checks a condition of a case on the harness. It returns why the case cannot run, or "".
type need = func(h *Harness) string

// needsSever is the need for Harness.Sever.
func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

// needsRestart is the need for Harness.Restart.
func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

// needsDown is the need for Harness.Down.
func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// needsIsolate is the need for Harness.Isolate.
func needsIsolate(h *Harness) string {
	return suite.Unless(h.Isolate != nil, "the harness has no Isolate")
}

// promised returns the need that get returns true for the adapter's promises. name is the promise's
// name, for the text.
func promised(name string, get func(p Promises) bool) need {
	return func(h *Harness) string { return suite.Unless(get(h.Promises), "the adapter does not promise "+name) }
}

// promisedNot returns the need that get returns false: the adapter does not make the promise, which
// would weaken the rules. name is the promise's name, for the text.
func promisedNot(name string, get func(p Promises) bool) need {
	return func(h *Harness) string { return suite.Unless(!get(h.Promises), "the adapter promises "+name) }
}

// needsLoss is the need of cases that cut a connection to lose a delivery.
func needsLoss(h *Harness) string {
	return suite.Unless(!h.Promises.Outlives, "the adapter promises Outlives: a cut connection loses no delivery")
}

var (
	needsDurable    = promised("Durable", func(p Promises) bool { return p.Durable })
	needsExactCount = promised("ExactCount", func(p Promises) bool { return p.ExactCount })
	needsDedupe     = promised("Dedupe", func(p Promises) bool { return p.Dedupe })
	needsOrder      = promised("Order", func(p Promises) bool { return p.Order })
	needsPriorities = promised("Priorities", func(p Promises) bool { return p.Priorities })
	needsFair       = promised("Fair", func(p Promises) bool { return p.Fair })
	needsTurns      = func(h *Harness) string {
		return suite.Unless(h.Promises.Fair || h.Promises.Lanes, "the adapter promises neither Fair nor Lanes")
	}
	needsNoTurns = func(h *Harness) string {
		return suite.Unless(!h.Promises.Fair && !h.Promises.Lanes, "the adapter promises Fair or Lanes")
	}
	needsClaimBounds  = promised("Bounds", func(p Promises) bool { return p.Bounds })
	needsNoBounds     = promisedNot("Bounds: it does not refuse them", func(p Promises) bool { return p.Bounds })
	needsFloor        = promised("Floor", func(p Promises) bool { return p.Floor })
	needsListKeys     = promised("ListKeys", func(p Promises) bool { return p.ListKeys })
	needsDelays       = promised("Delays", func(p Promises) bool { return p.Delays })
	needsBatch        = promised("Batch", func(p Promises) bool { return p.Batch })
	needsRetry        = promised("Retry", func(p Promises) bool { return p.Retry })
	needsSyncAck      = promised("SyncAck", func(p Promises) bool { return p.SyncAck })
	needsResize       = promised("Resize", func(p Promises) bool { return p.Resize })
	needsInspect      = promised("Inspect", func(p Promises) bool { return p.Inspect })
	needsDeadLetters  = promised("DeadLetters", func(p Promises) bool { return p.DeadLetters })
	needsFind         = promised("Find", func(p Promises) bool { return p.Find })
	needsOldest       = promised("Oldest", func(p Promises) bool { return p.Oldest })
	needsNames        = promised("Queues", func(p Promises) bool { return p.Queues })
	needsList         = promised("List", func(p Promises) bool { return p.List })
	needsDeadByID     = promised("DeadByID", func(p Promises) bool { return p.DeadByID })
	needsWatch        = promised("Watch", func(p Promises) bool { return p.Watch })
	needsWitness      = promised("Witness", func(p Promises) bool { return p.Witness })
	needsTransactions = promised("Transactions", func(p Promises) bool { return p.Transactions })
	needsMaxBody      = promised("a MaxBody", func(p Promises) bool { return p.MaxBody > 0 })
	needsQueues       = promisedNot("OpenQueues: every name is a queue", func(p Promises) bool { return p.OpenQueues })
	needsLeases       = func(h *Harness) string { return suite.Unless(h.Leases > 0, "the harness names no Leases") }
)

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(
		deliverCases(), nameCases(), settleCases(), prefetchCases(), orderCases(), priorityCases(), floorCases(), fairCases(), boundCases(), delayCases(),
		closeCases(), batchCases(), retryCases(), deadCases(), scanCases(), inspectCases(), listCases(), findCases(),
		leaseCases(), faultCases(), restartCases(), watchCases(), witnessCases(), transactionCases(), acknowledgementCases(), modelCases(),
	)
}
