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
)

// Run runs every case of the suite as a subtest of t. Each case calls open for a fresh namespace.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.area+"/"+c.name, func(t *testing.T) { c.runIn(t, open(t)) })
	}
}

// testCase is one sentence of the port put to the test.
type testCase struct {
	area, name string
	explain    string // why an adapter must pass; printed when it does not
	needs      []need
	run        func(w *world)
}

// need is what a case asks of the harness; it returns why the case cannot run, or "".
type need func(h *Harness) string

func unless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

func needsSever(h *Harness) string   { return unless(h.Sever != nil, "the harness has no Sever") }
func needsRestart(h *Harness) string { return unless(h.Restart != nil, "the harness has no Restart") }
func needsDown(h *Harness) string    { return unless(h.Down != nil, "the harness has no Down") }

// runIn runs the case in a fresh namespace.
func (c testCase) runIn(t *testing.T, h *Harness) {
	for _, n := range c.needs {
		if reason := n(h); reason != "" {
			t.Skip(reason)
		}
	}
	w := newWorld(t, h)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("why: " + c.explain)
		}
	})
	defer w.close()
	c.run(w)
}

// cases returns every case of the suite, area by area.
func cases() []testCase {
	return slices.Concat(fanoutCases(), contentCases(), flowCases(), closeCases(), faultCases())
}
