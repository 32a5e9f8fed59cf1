// Package suite holds the common parts of the ports' conformance suites: a table of cases, each
// with the reason why an adapter must pass, and the report of a whole run. A case that needs a
// promise which the adapter does not make is skipped by name. In a [World] a case opens adapters,
// waits with a limit and searches every error for the password.
//
// The requirements of a port stay in that port's suite.
package suite

import "testing"

// Case tests one sentence of a port. H is the suite's harness, one fresh namespace on a server. W
// is the suite's world, in which the case runs.
type Case[H any, W Closer] struct {
	Area, Name string
	Explain    string             // why an adapter must pass; printed if the case fails
	Needs      []func(h H) string // each returns why the case cannot run with the harness, or ""
	Run        func(w W)
}

// Unless returns "" if ok is true, and reason otherwise. It builds entries of Case.Needs.
func Unless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

// Closer is a world that can close everything that was opened in it.
type Closer interface {
	CloseAll()
}

// Run runs every case as a subtest of t, named by the case's area and name.
//
// Each case gets a fresh harness from open. If the harness meets the case's needs, the case runs in
// a world made by the function world. The world is closed when the case ends. If no case failed or
// was left out, Run checks the report of the run. Its file and promises come from about, called
// with the first harness.
func Run[H any, W Closer](t *testing.T, cases []Case[H, W], open func(t testing.TB) H, world func(t testing.TB, h H) W, about func(h H) About) {
	t.Helper()
	r := recorder{cases: len(cases)}
	for _, c := range cases {
		reason, done := "", false
		passed := t.Run(c.Area+"/"+c.Name, func(t *testing.T) {
			h := open(t)
			r.meet(func() About { return about(h) })
			if reason = c.unmet(h); reason == "" {
				c.start(t, h, world)
			}
			done = true
			if reason != "" {
				t.Skip(reason)
			}
		})
		if passed && done {
			r.add(c.Area, c.Name, reason)
		}
	}
	r.check(t)
}

// unmet returns the first reason why the case cannot run with h, or "".
func (c Case[H, W]) unmet(h H) string {
	for _, n := range c.Needs {
		if reason := n(h); reason != "" {
			return reason
		}
	}
	return ""
}

// start runs the case in a new world for h, which it closes at the end. If the case fails it logs
// the explanation.
func (c Case[H, W]) start(t *testing.T, h H, world func(t testing.TB, h H) W) {
	w := world(t, h)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("why: " + c.Explain)
		}
	})
	defer w.CloseAll()
	c.Run(w)
}
