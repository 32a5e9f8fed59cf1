// Package brokertest is the conformance suite of the broker port. It has a case for every sentence
// of package broker about the behavior of an adapter. The case's explanation is printed when it
// fails.
//
// An adapter's test returns a [Harness] for each case and calls [Run]:
//
//	func TestBroker(t *testing.T) {
//		brokertest.Run(t, func(t testing.TB) *brokertest.Harness {
//			s := startServer(t)
//			return &brokertest.Harness{
//				Open:     func(t testing.TB) broker.Broker { return connect(t, s) },
//				Promises: brokertest.Promises{Durable: true, Delays: true},
//			}
//		})
//	}
//
// [Bench] takes the same function.
package brokertest

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/suite"
)

// Run runs every case of the suite as a subtest of t. It calls open for a new namespace for each
// case.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

// about returns the description of a run with h: the file of the report, the port, and the
// promises.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "broker", Promises: append(suite.Promises(h.Promises), suite.Promise("Leases", h.Leases > 0))}
}

// Bench measures three things: publishing alone with several goroutines, publishing, receiving and
// acknowledging together, and one message at a time.
func Bench(b *testing.B, open func(t testing.TB) *Harness) {
	b.Helper()
	bench(b, open)
}
