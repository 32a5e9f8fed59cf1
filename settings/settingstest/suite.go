// Package settingstest is the conformance suite of the settings.Store port. It has a case for each
// sentence of the port, with an explanation that is printed on failure. A model of the port is
// compared with random calls of several stores.
//
// An adapter's test makes a [Harness] for each case and calls [Run].
package settingstest

import (
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/settings"
)

// Harness gives a test case one fresh set of settings on a server. [Run] makes one for each case.
// The function that makes it registers the clean-up with t.Cleanup.
type Harness struct {
	// Open opens a store of the settings, as another process would. The suite closes it before the
	// case ends.
	Open func(t testing.TB) settings.Store

	// Sever cuts the connections of all stores without notice to either end, and lets them reconnect
	// at once. Nil: cases that need it are skipped.
	Sever func(t testing.TB)

	// Restart stops the server and starts it again with its data. It returns when the server accepts
	// connections. Nil: cases that need it are skipped.
	Restart func(t testing.TB)

	// Down makes the server unreachable for all stores of this Harness, open ones included, until up
	// is called. Nil: cases that need it are skipped.
	Down func(t testing.TB) (up func())

	// Foreign writes something that no store writes where the values are, as another program would.
	// Nil: cases that need it are skipped.
	Foreign func(t testing.TB)

	// Secret is the password in the configuration of Open. No error may contain it. "": no password.
	Secret string

	// Promises are the optional features of the adapter.
	Promises Promises

	// Report is the file in docs/capabilities of this module that lists the adapter's features. The
	// suite compares it with its results. "": no comparison.
	Report string

	// Patience limits each wait for an event that must happen. Default: 1 min.
	Patience time.Duration
}

// Promises lists the optional features of an adapter. Cases for a feature that is not promised are
// skipped or weaker.
type Promises struct {
	// Exact: of several processes that change one revision, one succeeds. Each call sees all changes
	// of earlier calls.
	Exact   bool
	Durable bool // values survive Restart
}

// Run runs every case of the suite as a subtest of t. Each case calls open for fresh settings.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	suite.Run(t, cases(), open, newWorld, about)
}

// about returns the report file of h and the promises that the report lists.
func about(h *Harness) suite.About {
	return suite.About{File: h.Report, Port: "settings", Promises: suite.Promises(h.Promises)}
}

// testCase tests one sentence of the port.
type testCase = suite.Case[*Harness, *world]

// need checks whether the harness supports a case. It returns the reason for skipping the case, or
// "".
type need = func(h *Harness) string

// needsExact returns the reason to skip a case, or "" if the adapter promises Exact.
func needsExact(h *Harness) string {
	return suite.Unless(h.Promises.Exact, "the adapter does not promise Exact")
}

// needsSever returns the reason to skip a case, or "" if the harness has Sever.
func needsSever(h *Harness) string { return suite.Unless(h.Sever != nil, "the harness has no Sever") }

// needsRestart returns the reason to skip a case, or "" if the harness has Restart.
func needsRestart(h *Harness) string {
	return suite.Unless(h.Restart != nil, "the harness has no Restart")
}

// needsDurable returns the reason to skip a case, or "" if the adapter promises Durable.
func needsDurable(h *Harness) string {
	return suite.Unless(h.Promises.Durable, "the adapter does not promise Durable")
}

// needsForeign returns the reason to skip a case, or "" if the harness has Foreign.
func needsForeign(h *Harness) string {
	return suite.Unless(h.Foreign != nil, "the harness has no Foreign")
}

// needsDown returns the reason to skip a case, or "" if the harness has Down.
func needsDown(h *Harness) string { return suite.Unless(h.Down != nil, "the harness has no Down") }

// cases returns all cases of the suite, grouped by area.
func cases() []testCase {
	return slices.Concat(valueCases(), conflictCases(), watchCases(), closeCases(), faultCases())
}
