// Package limittest is the conformance suite for implementations of [limit.Limiter].
package limittest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/limit"
)

// patience limits each wait. lease does not end during a case; short does.
const (
	patience = time.Minute
	lease    = time.Minute
	short    = 300 * time.Millisecond
)

// Open makes a fresh store of limits. The returned function opens a limiter of that store, and
// closes it with t.Cleanup.
type Open func(t *testing.T) func(t *testing.T) limit.Limiter

// Run runs all cases of the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name, explain string
		run           func(w *world)
	}{
		{"Max", "No more than Max is held at a time; Release makes room.", testMax},
		{"Weights", "A permit counts with its weight, and one that does not fit is refused although a lighter one would.", testWeights},
		{"Keys", "Any text of up to 256 bytes is a key, and no two of them are the same limit.", testKeys},
		{"SeveralProcesses", "All who use a place share its limits.", testSeveral},
		{"AllOrNothing", "When one of several permits is refused none is held and no rate is charged.", testAllOrNothing},
		{"Again", "A holder that asks again for what it holds holds it once, and no rate is charged twice.", testAgain},
		{"LeaseEnds", "What is not renewed becomes free when its lease ends, and not before.", testLeaseEnds},
		{"Renew", "Renew prolongs all leases, or none: ErrLost.", testRenew},
		{"ReleaseTwice", "Releasing what is not held is no error and frees nothing of others.", testReleaseTwice},
		{"Rate", "A rate lets its burst begin at once and then one after each interval; RetryAfter says when.", testRate},
		{"RateAndMax", "A refusal for want of room charges no rate, and one by rate holds nothing.", testRateAndMax},
		{"Usage", "The use of a limit shows who holds it and how far ahead its rate is used.", testUsage},
		{"BadPermits", "What can never be granted, or is no permit, is ErrBadPermit.", testBadPermits},
		{"Nothing", "No permit at all is granted.", testNothing},
		{"EndedContext", "A ctx that has ended is an error.", testEndedContext},
		{"Wrapper", "A wrapper with Unwrap keeps every capability.", testWrapper},
		{"Race", "Many at once never hold more than Max together, and all get their turn.", testRace},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("why: " + c.explain)
				}
			})
			view := open(t)
			c.run(&world{T: t, view: view, l: view(t)})
		})
	}
}

// world is the limiter under test with its helpers. The helpers fail the case where they say so.
type world struct {
	*testing.T
	view func(t *testing.T) limit.Limiter
	l    limit.Limiter
}

// ctx returns a context that ends after patience or with the case.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// acquire calls acquireFor with a lease that does not end during the case.
func (w *world) acquire(holder string, ps ...limit.Permit) limit.Decision {
	w.Helper()
	return w.acquireFor(lease, holder, ps...)
}

// acquireFor calls Acquire once and returns its decision. It fails the case after an error or a
// contradictory decision.
func (w *world) acquireFor(lease time.Duration, holder string, ps ...limit.Permit) limit.Decision {
	w.Helper()
	d, err := w.l.Acquire(w.ctx(), holder, lease, ps...)
	if err != nil {
		w.Fatalf("Acquire for %s: %v", holder, err)
	}
	if d.Granted && d.RetryAfter != 0 || d.RetryAfter < 0 {
		w.Errorf("Acquire for %s: %+v", holder, d)
	}
	return d
}

// granted calls Acquire once and fails the case unless the permits were granted (want) or refused
// (not want).
func (w *world) granted(want bool, holder string, ps ...limit.Permit) {
	w.Helper()
	if d := w.acquire(holder, ps...); d.Granted != want {
		w.Errorf("Acquire for %s: %+v, want granted %t", holder, d, want)
	}
}

// release calls Release and fails the case after an error.
func (w *world) release(holder string, ps ...limit.Permit) {
	w.Helper()
	if err := w.l.Release(w.ctx(), holder, ps...); err != nil {
		w.Fatalf("Release for %s: %v", holder, err)
	}
}

// eventually repeats ok until it returns true. If it does not within patience, eventually fails the
// case; what names the condition.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s", patience, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// wrapper is a limiter that wraps another one without its optional interfaces, as users write it.
type wrapper struct{ limit.Limiter }

// Unwrap returns the wrapped limiter, so that capability.As finds its optional interfaces.
func (w wrapper) Unwrap() any { return w.Limiter }

// testWrapper expects that a wrapper with Unwrap is a limit.Closer if and only if the limiter is
// one.
func testWrapper(w *world) {
	want, has := capability.As[limit.Closer](w.l)
	if got, ok := capability.As[limit.Closer](wrapper{w.l}); ok != has || got != want {
		w.Errorf("%T is a Closer: %t; through a wrapper: %t", w.l, has, ok)
	}
}

// testMax expects that Max 2 grants a key to two holders and refuses the third until a Release.
func testMax(w *world) {
	p := limit.Permit{Key: "a", Max: 2}
	w.granted(true, "1", p)
	w.granted(true, "2", p)
	w.granted(false, "3", p)
	w.granted(true, "3", limit.Permit{Key: "b", Max: 2})
	w.release("1", p)
	w.granted(true, "4", p)
	w.granted(false, "5", p)
}

// testKeys expects that odd texts of up to 256 bytes are different keys, each with Max and Rate.
func testKeys(w *world) {
	keys := []string{
		"a", "A", " ", "a b", "a:b", "{a}", "}{", "ends:a", "-", ".", "\n", "\x00", "\xff", "Kunde Müller & Söhne", "株式会社", "a*?[b]\\",
		strings.Repeat("k", 255), strings.Repeat("k", 256),
	}
	for _, key := range keys {
		w.granted(true, "1", limit.Permit{Key: key, Max: 1, Rate: 1, Per: time.Hour, Burst: 2})
	}
	for _, key := range keys {
		p := limit.Permit{Key: key, Max: 1, Rate: 1, Per: time.Hour, Burst: 2}
		w.granted(false, "2", p)
		if err := w.l.Renew(w.ctx(), "1", lease, p); err != nil {
			w.Errorf("Renew of %q: %v", key, err)
		}
		w.release("1", p)
		w.granted(true, "2", p)
	}
}

// testWeights expects that the weights of the holders of a key add up to at most Max.
func testWeights(w *world) {
	heavy, light := limit.Permit{Key: "a", Weight: 4, Max: 10}, limit.Permit{Key: "a", Max: 10}
	w.granted(true, "1", heavy)
	w.granted(true, "2", heavy)
	w.granted(false, "3", heavy)
	w.granted(true, "4", light)
	w.granted(true, "5", light)
	w.granted(false, "6", light)
	w.release("1", heavy)
	w.granted(true, "3", heavy)
	w.granted(false, "6", light)
}

// testSeveral expects that a second limiter of the same store shares the limit of the first.
func testSeveral(w *world) {
	p := limit.Permit{Key: "a", Max: 1}
	w.granted(true, "1", p)
	w.l = w.view(w.T)
	w.granted(false, "2", p)
	w.release("1", p)
	w.granted(true, "2", p)
}

// testAllOrNothing expects that a refusal of one permit leaves the others free and counts no rate.
func testAllOrNothing(w *world) {
	a, b, c := limit.Permit{Key: "a", Max: 1}, limit.Permit{Key: "b", Max: 1}, limit.Permit{Key: "c", Rate: 1, Per: time.Hour}
	w.granted(true, "1", b)
	w.granted(false, "2", a, b, c)
	w.granted(true, "3", a)
	w.granted(true, "4", c)
}

// testAgain expects that a repeated Acquire of a holder is granted, and counted once.
func testAgain(w *world) {
	p := limit.Permit{Key: "a", Max: 2, Rate: 2, Per: time.Hour, Burst: 2}
	w.granted(true, "1", p)
	w.granted(true, "1", p)
	w.granted(true, "2", p)
	w.granted(true, "1", p)
	w.release("1", p)
	w.granted(false, "3", limit.Permit{Key: "a", Max: 1})
	w.granted(true, "3", limit.Permit{Key: "a", Max: 2})
}

// testLeaseEnds expects that a lease ends by itself, not earlier than it should. A late Release of
// its former holder frees nothing.
func testLeaseEnds(w *world) {
	p := limit.Permit{Key: "a", Max: 1}
	begin := time.Now()
	if !w.acquireFor(short, "1", p).Granted {
		w.Fatal("the first is refused")
	}
	w.eventually("the lease has ended", func() bool { return w.acquire("2", p).Granted })
	if took := time.Since(begin); took < short-2*time.Millisecond {
		w.Errorf("a lease of %s ended after %s", short, took)
	}
	w.release("1", p) // it does not hold the permit any more
	w.granted(false, "3", p)
}

// testRenew expects that Renew extends a lease or shortens it. It expects ErrLost, with no change,
// if the holder does not hold one of the permits. A permit with only a rate is ignored.
func testRenew(w *world) {
	a, b := limit.Permit{Key: "a", Max: 1}, limit.Permit{Key: "b", Max: 1}
	rate := limit.Permit{Key: "r", Rate: 1, Per: time.Hour}
	if !w.acquireFor(time.Second, "1", a, rate).Granted {
		w.Fatal("the first is refused")
	}
	if err := w.l.Renew(w.ctx(), "1", lease, a, b); !errors.Is(err, limit.ErrLost) {
		w.Errorf("Renew of what is held in part: %v", err)
	}
	if err := w.l.Renew(w.ctx(), "2", lease, a); !errors.Is(err, limit.ErrLost) {
		w.Errorf("Renew of what another holds: %v", err)
	}
	if err := w.l.Renew(w.ctx(), "1", lease, a, rate); err != nil {
		w.Fatalf("Renew: %v", err)
	}
	<-time.After(1100 * time.Millisecond)
	w.granted(false, "2", a)
	w.granted(true, "2", b)
	if err := w.l.Renew(w.ctx(), "1", limit.MinLease, a); err != nil {
		w.Fatalf("Renew: %v", err)
	}
	w.eventually("the lease has ended", func() bool { return w.acquire("3", a).Granted })
	if err := w.l.Renew(w.ctx(), "1", lease, a); !errors.Is(err, limit.ErrLost) {
		w.Errorf("Renew after the lease has ended: %v", err)
	}
}

// testReleaseTwice expects that Release of a permit that is not held returns nil and frees nothing.
func testReleaseTwice(w *world) {
	p := limit.Permit{Key: "a", Max: 1}
	w.release("1", p)
	w.granted(true, "1", p)
	w.release("2", p)
	w.granted(false, "2", p)
	w.release("1", p)
	w.release("1", p)
	w.granted(true, "2", p)
	w.granted(false, "3", p)
}

// testRate expects that a rate of 5 per second with a burst of 2 lets 7 start in no less than a
// second. It checks RetryAfter, and that the default burst is at least the weight.
func testRate(w *world) {
	p := limit.Permit{Key: "a", Rate: 5, Burst: 2} // one in 200 ms
	begin := time.Now()
	w.granted(true, "1", p)
	w.granted(true, "2", p)
	d := w.acquire("3", p)
	if d.Granted || d.RetryAfter <= 0 || d.RetryAfter > 200*time.Millisecond {
		if time.Since(begin) < 150*time.Millisecond {
			w.Errorf("the third is answered %+v", d)
		}
	}
	for i := range 5 {
		w.eventually("its turn has come", func() bool { return w.acquire(fmt.Sprint(3+i), p).Granted })
	}
	if took := time.Since(begin); took < 998*time.Millisecond {
		w.Errorf("7 began within %s, of which 2 at once and one each 200 ms", took)
	}
	heavy := limit.Permit{Key: "b", Weight: 3, Rate: 60, Per: time.Minute}
	w.granted(true, "1", heavy)
	if d := w.acquire("2", heavy); d.Granted || d.RetryAfter > 3*time.Second {
		w.Errorf("a second weight of 3 at 1/s is answered %+v", d)
	}
}

// testRateAndMax expects that a refusal by Max counts no rate, and a refusal by the rate holds
// nothing.
func testRateAndMax(w *world) {
	p := limit.Permit{Key: "a", Max: 1, Rate: 2, Per: time.Hour, Burst: 2}
	w.granted(true, "1", p)
	w.granted(false, "2", p)
	w.granted(false, "2", p)
	w.release("1", p)
	w.granted(true, "2", p)
	w.release("2", p)
	if d := w.acquire("3", p); d.Granted || d.RetryAfter < 25*time.Minute || d.RetryAfter > 30*time.Minute {
		w.Errorf("the third in an hour of 2: %+v", d)
	}
	w.granted(true, "4", limit.Permit{Key: "a", Max: 1})
}

// testBadPermits expects ErrBadPermit from Acquire for invalid permits, holders and leases, and for
// two permits of one key. Afterwards the key is still free.
func testBadPermits(w *world) {
	good := limit.Permit{Key: "a", Max: 1}
	for _, p := range []limit.Permit{
		{},
		{Key: strings.Repeat("k", 257)},
		{Key: "a", Weight: -1},
		{Key: "a", Max: -1},
		{Key: "a", Rate: -1},
		{Key: "a", Rate: 1, Per: -1},
		{Key: "a", Weight: 2, Max: 1},
		{Key: "a", Weight: 3, Rate: 1, Burst: 2},
		{Key: "a", Rate: 2_000_000},
		{Key: "a", Rate: 1, Burst: -1},
	} {
		if d, err := w.l.Acquire(w.ctx(), "1", lease, p); !errors.Is(err, limit.ErrBadPermit) || d.Granted {
			w.Errorf("%+v: %+v, %v", p, d, err)
		}
	}
	for _, bad := range []struct {
		holder string
		lease  time.Duration
		ps     []limit.Permit
	}{{"", lease, []limit.Permit{good}}, {"1", time.Millisecond, []limit.Permit{good}}, {"1", 0, []limit.Permit{good}}, {"1", -1, []limit.Permit{good}}, {"1", lease, []limit.Permit{good, good}}} {
		if _, err := w.l.Acquire(w.ctx(), bad.holder, bad.lease, bad.ps...); !errors.Is(err, limit.ErrBadPermit) {
			w.Errorf("%+v: %v", bad, err)
		}
	}
	w.granted(true, "1", good)
}

// testNothing expects that Acquire, Renew and Release succeed without permits.
func testNothing(w *world) {
	w.granted(true, "1")
	if err := w.l.Renew(w.ctx(), "1", lease); err != nil { // there was nothing to lose
		w.Errorf("Renew: %v", err)
	}
	w.release("1")
}

// testEndedContext expects an error of every method if ctx has ended.
func testEndedContext(w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := limit.Permit{Key: "a", Max: 1}
	if d, err := w.l.Acquire(ctx, "1", lease, p); err == nil || d.Granted {
		w.Errorf("Acquire: %+v, %v", d, err)
	}
	if w.l.Renew(ctx, "1", lease, p) == nil || w.l.Release(ctx, "1", p) == nil {
		w.Error("Renew or Release returned nil")
	}
}

// testRace acquires and releases one limit with Max 3 from eight goroutines on two limiters. It
// expects that never more than 3 hold it, and that all 160 holders get it.
func testRace(w *world) {
	p := limit.Permit{Key: "a", Max: 3}
	views := []limit.Limiter{w.l, w.view(w.T)}
	var now, most, done atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			l := views[g%2]
			for i := range 20 {
				holder := fmt.Sprintf("%d-%d", g, i)
				for end := time.Now().Add(patience); ; {
					d, err := l.Acquire(context.Background(), holder, lease, p)
					if err != nil || time.Now().After(end) {
						w.Errorf("Acquire: %+v, %v", d, err)
						return
					}
					if d.Granted {
						break
					}
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				now.Add(-1)
				if err := l.Release(context.Background(), holder, p); err != nil {
					w.Errorf("Release: %v", err)
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || done.Load() != 160 {
		w.Errorf("%d were held at once under 3; %d of 160 had their turn", most.Load(), done.Load())
	}
}
