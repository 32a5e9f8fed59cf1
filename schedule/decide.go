package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// action is the decision about a due tick, which is one run of an entry.
type action int

const (
	runTick      action = iota
	skipTick            // its misfire or overlap policy leaves it out
	postponeTick        // it cannot be run now
	giveUpTick          // it was postponed for too long; the entry continues
	dropTick            // its payload is not JSON
)

// decision is an action for one due tick, with its reasons and parameters.
type decision struct {
	action  action
	hold    *hold
	next    time.Time
	problem Problem // "": there is nothing to report
	err     error
	delay   time.Duration // only for postponeTick
	others  bool          // another listener may be able to run it
}

// claiming holds claims and the decisions that they belong to, at the same index.
type claiming struct {
	claims    []Claim
	decisions []decision
}

// add appends a claim and the decision that led to it.
func (c *claiming) add(k Claim, v decision) {
	c.claims, c.decisions = append(c.claims, k), append(c.decisions, v)
}

// errOverlap is the problem of an entry with OverlapSkip in a listener without a result store.
var errOverlap = fmt.Errorf("%w: the entry's overlap policy needs a result store; set Results of the listener", ErrUnsupported)

// claimDue decides about the due ticks in b, claims them in the store, and passes them to dispatch
// with their decisions. It leaves out ticks that still run here, that are left to other listeners,
// or that another listener claimed first. At most free ticks are claimed for this listener, which
// then holds them in r.held.
//
// A tick that cannot run now is claimed for [NoOwner] and is due again after its delay. Such
// ticks are counted in Stats.PutOff and reported, and do not count toward free. claimDue returns
// the number of won claims, these included.
//
// It sets b.Next to the earliest time at which a tick will be due. It sets b.More if it stopped
// because free ticks were chosen. It replaces r.left and sets the runner's clock. asked is the time
// before the request of b; b.Now is the store's clock at that time.
//
// It blocks until the store answers or ctx ends; decide may also wait for the result store. Only
// the goroutine of fetch calls it.
func (r *runner) claimDue(ctx context.Context, b *Batch, asked time.Time, free int) int {
	now := b.Now.Add(time.Since(asked))
	r.setClock(now)
	var taken claiming
	puts := map[time.Duration]*claiming{} // by delay
	before := r.left
	r.left = map[tickKey]time.Time{}
	for i := range b.Ticks {
		k := &b.Ticks[i]
		if len(taken.claims) == free {
			b.More = true
			break
		}
		if r.holds(k) { // Its lease ran out although it still runs here.
			continue
		}
		v := r.decide(ctx, k, now)
		if v.others && r.leaveToOthers(b, k, before, now) {
			continue
		}
		b.expect(v.next)
		c := Claim{Tick: *k, Next: v.next, Remember: v.action == runTick && v.hold.content.remembered()}
		if v.action != postponeTick {
			taken.add(c, v)
			continue
		}
		b.expect(now.Add(v.delay))
		if puts[v.delay] == nil {
			puts[v.delay] = &claiming{}
		}
		puts[v.delay].add(c, v)
	}
	took := 0
	for i, won := range r.claim(ctx, r.c.NodeID, r.c.Lease, taken.claims) {
		if won {
			took++
			r.held.Hold(taken.decisions[i].hold)
		} else {
			taken.decisions[i].hold = nil
		}
	}
	r.dispatch(taken.decisions)
	for delay, list := range puts {
		for i, won := range r.claim(ctx, NoOwner, delay, list.claims) {
			if v := list.decisions[i]; won {
				took++
				r.l.stats.putOff.Add(1)
				r.reportProblem(&v)
			}
		}
	}
	return took
}

const (
	// waitForOthers limits how long a tick that this listener cannot run is left to others. It is
	// longer than the defaults of Poll.
	waitForOthers = 10 * time.Second
	// maxLeft limits how many ticks are left to others at once. They come first in each Batch, so they
	// take the place of ticks that this listener could run.
	maxLeft = maxClaim / 2
)

// leaveToOthers reports whether a due tick that this listener cannot run stays due for other
// listeners. It is true until waitForOthers has passed since this listener first saw the tick, or
// UnknownDelay if that is shorter. It is false if maxLeft ticks are left already.
//
// before holds the ticks left in the last Batch, and since when; a tick that is not in it counts as
// seen first now. If the result is true, leaveToOthers adds the tick to r.left and sets b.Next to
// the end of the wait, if that is earlier. It takes no lock.
func (r *runner) leaveToOthers(b *Batch, k *Tick, before map[tickKey]time.Time, now time.Time) bool {
	since, seen := before[keyOf(k)]
	if !seen {
		since = time.Now()
	}
	rest := min(waitForOthers, r.c.UnknownDelay) - time.Since(since)
	if rest <= 0 || len(r.left) == maxLeft {
		return false
	}
	r.left[keyOf(k)] = since
	b.expect(now.Add(rest))
	return true
}

// setClock stores the current time of the store's clock. It takes r.mu.
func (r *runner) setClock(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.nowAt = now, time.Now()
}

// clock returns the current time of the store's clock, extrapolated from the last setClock. It
// takes r.mu.
func (r *runner) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Add(time.Since(r.nowAt))
}

// expect sets b.Next to t if t is earlier. A zero t is ignored.
func (b *Batch) expect(t time.Time) {
	if !t.IsZero() && (b.Next.IsZero() || t.Before(b.Next)) {
		b.Next = t
	}
}

// holds reports whether this listener holds the tick, which means that it has claimed it and not
// yet ended the claim. If so, holds also renews the lease with a call to the store and blocks until
// that returns. The result does not depend on the renewal.
func (r *runner) holds(k *Tick) bool {
	h, held := r.held.Get(keyOf(k))
	if held {
		r.held.Renew(r.calls, h)
	}
	return held
}

// claim claims ticks in the store for owner and returns, for each claim, whether the owner holds
// the tick now. It returns nil for no claims. It blocks and retries until the store answers,
// because a claim whose answer was lost would block its tick until the lease ends. The first
// failure is logged.
//
// The end of ctx stops the retries, but not a call in progress, which lasts at most one lease. If
// it gives up, it returns only false values, although the store may have made some claims. It gives
// up if ctx ends, the store is closed, or the store rejects the claims.
func (r *runner) claim(ctx context.Context, owner string, lease time.Duration, claims []Claim) []bool {
	if len(claims) == 0 {
		return nil
	}
	for attempt := 0; ; attempt++ {
		call, cancel := r.call()
		won, err := r.c.Store.Claim(call, owner, lease, claims)
		cancel()
		if err == nil {
			return won
		}
		if attempt == 0 {
			r.c.Logger.Warn("schedule: claiming ticks failed; trying again", "schedule", r.c.Name, "error", err)
		}
		if ctx.Err() != nil || errors.Is(err, ErrBadEntry) || errors.Is(err, ErrClosed) {
			return make([]bool, len(claims))
		}
		wake.Sleep(ctx, r.c.Backoff.Interval(attempt))
	}
}

// dispatch passes claimed ticks on:
//
//   - A tick to run goes to the queue of the workers. With ListenerConfig.Submit all ticks to run
//     go to the submitters as one batch.
//   - A skipped, given up or dropped tick goes to sendFinish, which ends its claim. A skipped tick
//     that was the last one of its entry removes the entry.
//
// It ignores decisions without a hold: their claims were not won. It counts skipped and dropped
// ticks, and ticks that a listener had claimed before (Stats.Again). It reports the problems of
// decisions. It can block in sendFinish.
func (r *runner) dispatch(decisions []decision) {
	var batch []*hold
	for i := range decisions {
		v := &decisions[i]
		if v.hold == nil {
			continue
		}
		if v.hold.tick.Owner != "" && v.hold.tick.Owner != NoOwner {
			r.l.stats.again.Add(1)
		}
		r.reportProblem(v)
		switch v.action {
		case skipTick:
			r.l.stats.skipped.Add(1)
			r.sendFinish(v.hold, Finish{Remove: v.hold.remove})
		case giveUpTick, dropTick:
			r.l.stats.dropped.Add(1)
			r.sendFinish(v.hold, Finish{})
		default:
			if r.c.Submit == nil {
				r.queue <- v.hold // Does not block: free was the capacity of the queue.
			} else {
				batch = append(batch, v.hold)
			}
		}
	}
	if len(batch) > 0 {
		r.batches <- batch
	}
}

// A tick that stays postponed is reported once in each reportInterval.
const (
	reportInterval = time.Hour
	maxReported    = 10_000 // postponed ticks whose last report is remembered
)

// reportProblem reports the problem of a decision to the log and OnReport, if it has one. A tick
// that is postponed repeatedly is reported once an hour; see shouldReport. It takes r.mu for a
// postponed tick.
func (r *runner) reportProblem(v *decision) {
	if v.problem != "" && (v.action != postponeTick || r.shouldReport(keyOf(&v.hold.tick))) {
		job := ""
		if v.hold.content != nil {
			job = v.hold.content.Job
		}
		r.l.report(v.problem, &v.hold.tick, job, v.err)
	}
}

// shouldReport reports whether a postponed tick has no report yet, or an old one: at least
// reportInterval ago. If so, it remembers now as the last report. It takes r.mu.
//
// It remembers up to maxReported ticks. When there are that many, it forgets those last reported
// more than two intervals ago. If none are that old, the new tick is not remembered and may be
// reported each time.
func (r *runner) shouldReport(k tickKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, ok := r.reported[k]; ok && now.Sub(last) < reportInterval {
		return false
	}
	if len(r.reported) == maxReported {
		maps.DeleteFunc(r.reported, func(_ tickKey, last time.Time) bool { return now.Sub(last) > 2*reportInterval })
	}
	if len(r.reported) < maxReported {
		r.reported[k] = now
	}
	return true
}

// decide returns what to do with a due tick at the time now. It changes nothing in the store.
//
//   - dropTick: the payload is not JSON.
//   - postponeTick: this version cannot read the payload or spec, this listener cannot run the
//     tick, or the result store failed.
//   - giveUpTick: this listener cannot run the tick, the tick is later than UnknownLimit, and the
//     entry has a later tick.
//   - skipTick: the misfire policy leaves the tick out. Or the policy is OverlapSkip and the last
//     run has not ended.
//   - runTick: in all other cases. A tick that a listener claimed before always runs again if it
//     can be run: policies are not applied twice.
//
// decision.others is true if another listener may be able to run the tick. decision.next is the
// entry's next due time; it stays zero for postponed and dropped ticks. decision.delay is
// brokenDelay, UnknownDelay or, for the result store, a second. With OverlapSkip, decide loads the
// record of the last run from the result store and blocks meanwhile.
func (r *runner) decide(ctx context.Context, k *Tick, now time.Time) decision {
	h := &hold{tick: *k, id: TickID(r.c.Name, k.ID, k.Due)}
	var spec when.Spec
	var err error
	if h.content, err = Decode(k.Payload); err == nil {
		spec, err = r.spec(h.content)
	}
	if err != nil {
		if !json.Valid(k.Payload) {
			return decision{action: dropTick, hold: h, problem: ProblemBroken, err: err}
		}
		// A newer version or one with more time zones may be able to read it.
		return decision{action: postponeTick, hold: h, delay: brokenDelay, problem: ProblemBroken, err: err, others: true}
	}
	p := h.content.Misfire.plan(spec, k.Due, now)
	if k.Owner == NoOwner && !k.Next.IsZero() {
		// The tick was due when its entry was changed. Runs by the new spec are not newer missed ones.
		p.late = h.content.Misfire == MisfireSkip && now.Sub(k.Due) > tooLate
	}
	h.remove = p.next.IsZero()
	if problem, err := r.checkRunnable(h.content); err != nil {
		v := r.postponeOrGiveUp(h, now, problem, err)
		v.others = true
		if v.action == giveUpTick {
			v.next = p.next
		}
		return v
	}
	v := decision{hold: h, next: p.next}
	if k.Owner != "" && k.Owner != NoOwner { // A listener has claimed this tick before.
		return v
	}
	if p.late {
		v.action = skipTick
		return v
	}
	if h.content.Overlap == OverlapSkip && !k.Last.IsZero() && !k.Last.Equal(k.Due) {
		busy, err := r.busy(ctx, h, now)
		if err != nil {
			return decision{action: postponeTick, hold: h, delay: time.Second, problem: ProblemRefused, err: err}
		}
		if busy {
			v.action = skipTick
		}
	}
	return v
}

// brokenDelay is the delay of a postponed entry that cannot be read.
const brokenDelay = MaxLease

// postponeOrGiveUp decides to postpone a tick by UnknownDelay, with problem p and err. If the tick
// is later than UnknownLimit and its entry has a later tick, it decides to give the tick up, with
// ProblemGivenUp and err. It only returns the decision; it sets no decision.next.
func (r *runner) postponeOrGiveUp(h *hold, now time.Time, p Problem, err error) decision {
	if !h.remove && now.Sub(h.tick.Due) > r.c.UnknownLimit {
		return decision{action: giveUpTick, hold: h, problem: ProblemGivenUp, err: err}
	}
	return decision{action: postponeTick, hold: h, delay: r.c.UnknownDelay, problem: p, err: err}
}

// checkRunnable returns an error, and the problem to report, if this listener cannot run an entry:
//
//   - ProblemRefused: the entry has OverlapSkip, but the listener has no result store.
//   - ProblemRefused: the listener submits tasks, and the task's name is invalid.
//   - ProblemUnknown: the listener runs handlers in place, and the job has no handler here.
//
// If the error is nil, the listener can run the entry, and the Problem has no meaning.
func (r *runner) checkRunnable(c *Content) (Problem, error) {
	if c.Overlap == OverlapSkip && r.c.Results == nil {
		return ProblemRefused, errOverlap
	}
	if r.c.Submit != nil {
		return ProblemRefused, task.CheckName(r.c.TaskName(c.Job))
	}
	if _, _, ok := r.l.handlers.Lookup(c.Job); !ok {
		return ProblemUnknown, task.ErrUnknownTask
	}
	return "", nil
}

// maxSpecs is the size of the cache of specs. Many entries that are due together have the same
// spec.
const maxSpecs = 1000

// spec returns the parsed spec of c and caches it by its text. A full cache is cleared first.
// Errors of Content.Spec are returned and not cached. Only the goroutine of fetch calls it.
func (r *runner) spec(c *Content) (when.Spec, error) {
	if s := r.specs[c.When]; s != nil {
		return s, nil
	}
	s, err := c.Spec()
	if err == nil {
		if len(r.specs) >= maxSpecs {
			clear(r.specs)
		}
		r.specs[c.When] = s
	}
	return s, err
}

// busy reports whether the last run of the entry has not ended, according to the result store.
// Without a record the run counts as not ended until ResultTTL has passed since its due time. The
// result has no meaning if the error, which is the result store's, is not nil.
func (r *runner) busy(ctx context.Context, h *hold, now time.Time) (bool, error) {
	record, err := r.c.Results.Load(ctx, TickID(r.c.Name, h.tick.ID, h.tick.Last))
	if errors.Is(err, resultstore.ErrNotFound) {
		ttl := h.content.Meta.ResultTTL.Or(task.DefaultResultTTL)
		return now.Sub(h.tick.Last) < ttl, nil
	}
	return !record.State.Terminal(), err
}
