package eventstest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// Harness is one fresh namespace on a server, without the events of any other Harness. The function
// given to [Run] makes one for each case and registers its clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace like another process. The suite closes the bus before the case
	// ends.
	Open func(t testing.TB) events.EventBus

	// Retain connects like Open, with a bus that keeps events as r says: an [events.Retainer]. All
	// buses that one case opens with it have the same r. Buses from Open keep no events. Nil: the
	// adapter keeps no events, and the cases that need it are skipped by name.
	Retain func(t testing.TB, r events.Retention) events.EventBus

	// Sever cuts the connections of b like a network failure: neither end is told, and b may reconnect
	// at once. Nil: its cases are skipped by name.
	Sever func(t testing.TB, b events.EventBus)

	// Restart stops the server and starts it again with its data. It returns when the server accepts
	// connections. Nil: its cases are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every open and future bus of this Harness until up is
	// called. It returns when the server is unreachable. Nil: its cases are skipped by name.
	Down func(t testing.TB) (up func())

	// Secret is the password that Open uses. No error may contain it. "": no password.
	Secret string

	// Buffer is the largest number of events that a Subscription or a bus holds. The suite publishes
	// more so that some are dropped. At least 500. Default: 8,192.
	Buffer int

	// Report is a file below docs/capabilities of this module, such as
	// ../../docs/capabilities/events-memory.json. A complete run that passes is compared with it, or
	// writes it if SWARMIJI_UPDATE is 1. Only the Report of the first Harness counts. "": no report.
	Report string

	// Slack is the longest accepted delay of an event. Default: 5s, for busy machines.
	Slack time.Duration

	// Quiet is the time without an event after which the suite concludes that none arrives. Default:
	// 500ms.
	Quiet time.Duration

	// Patience is the longest wait for something that must happen. Default: 1 min.
	Patience time.Duration
}
