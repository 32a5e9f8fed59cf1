// Package suite is what the conformance suites of the ports have in common: a table of cases that say why an adapter must
// pass, skipping by name what an adapter does not promise, the report on a whole run, and a [World] in which a case opens
// adapters, waits for no longer than it may, and looks for the password in every error.
//
// What a case asks of a port stays in that port's suite.
package suite

import "testing"

// Case is one sentence of a port put to the test. H is the suite's harness, one fresh namespace on a server; W is its
// world, with which the case works.
type Case[H any, W Closer] struct {
	Area, Name string
	Explain    string             // why an adapter must pass; printed when it does not
	Needs      []func(h H) string // what the case asks of the harness: why it cannot run, or ""
	Run        func(w W)
}

// Unless returns reason, for what a case needs, unless ok holds, and then "".
func Unless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

// Closer is a world that closes what was opened in it.
type Closer interface {
	CloseAll()
}

// Run runs every case as a subtest of t that is named by the case's area and name. Each case calls open for a fresh
// harness and, if the harness has what the case needs, world for a world in it, which it closes at its end. When all cases
// have run, and passed, they are reported as about says of the first harness.
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

// unmet returns why the case cannot run with h, or "".
func (c Case[H, W]) unmet(h H) string {
	for _, n := range c.Needs {
		if reason := n(h); reason != "" {
			return reason
		}
	}
	return ""
}

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
