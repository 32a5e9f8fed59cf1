package eventstest

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

// Harness is one fresh namespace on a server: no event of another Harness is seen in it. The function given to [Run] makes
// one for each case; it registers its own clean-up with t.Cleanup.
type Harness struct {
	// Open connects to the namespace as another process would. The suite closes what it opened before the case ends.
	Open func(t testing.TB) events.EventBus

	// Retain connects as Open does, with a bus that keeps events as r says: an [events.Retainer]. The buses that one case
	// opens with it all have the same r; Open's keep nothing. Nil: the adapter keeps no events, and the cases that need it
	// are skipped by name.
	Retain func(t testing.TB, r events.Retention) events.EventBus

	// Sever cuts the connections of b as a network would, without a word to either end, and lets b reconnect at once. Nil:
	// the cases that need it are skipped by name.
	Sever func(t testing.TB, b events.EventBus)

	// Restart stops the server and starts it again with its data; it returns when the server takes connections. Nil: the
	// cases that need it are skipped by name.
	Restart func(t testing.TB)

	// Down makes the server unreachable for every bus of this Harness, those that are open included, until up is called. It
	// returns when it is unreachable. Nil: the cases that need it are skipped by name.
	Down func(t testing.TB) (up func())

	// Secret is the password in the configuration of Open. No error may contain it. Empty: there is none.
	Secret string

	// Buffer is how many events a Subscription or a bus holds at most; the suite publishes more to see them dropped. At
	// least 500. Zero: 8,192.
	Buffer int

	// Report is the file below docs/capabilities of this module that says what the adapter can do, such as
	// ../../docs/capabilities/events-memory.json: a whole run that passes is compared with it, or writes it if SWARMIJI_UPDATE
	// is 1. It is named after the first Harness. "": nothing is compared.
	Report string

	// Slack is how late an event may be. Zero: 5 s, for busy machines.
	Slack time.Duration

	// Quiet is how long the suite looks before it believes that nothing comes. Zero: 500 ms.
	Quiet time.Duration

	// Patience bounds every wait for something that must happen. Zero: 30 s.
	Patience time.Duration
}
