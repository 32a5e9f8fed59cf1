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

// action is what becomes of a tick.
type action int

const (
	runIt    action = iota
	leaveOut        // by a policy
	putOff          // it cannot be run now
	giveUp          // it is too late for that; the entry goes on
	dropIt          // no program will ever be able to read it
)

// verdict is what was decided of a tick.
type verdict struct {
	action  action
	hold    *hold
	next    time.Time
	problem Problem // "": none
	err     error
	delay   time.Duration // of putOff
	others  bool          // another listener may be able to run it
}

// claiming are claims with the verdicts that they carry out, index by index.
type claiming struct {
	claims   []Claim
	verdicts []verdict
}

func (c *claiming) add(k Claim, v verdict) {
	c.claims, c.verdicts = append(c.claims, k), append(c.verdicts, v)
}

// errOverlap is why a listener cannot run an entry of the policy.
var errOverlap = fmt.Errorf("%w: its overlap policy needs a result store; set Results", ErrUnsupported)

// take decides on what is due, claims up to room of it, and hands it on. It returns how many ticks
// it got.
func (r *round) take(ctx context.Context, b *Batch, asked time.Time, room int) int {
	now := b.Now.Add(time.Since(asked))
	r.setClock(now)
	var taken claiming
	puts := map[time.Duration]*claiming{} // by the delay
	before := r.left
	r.left = map[tickKey]time.Time{}
	for i := range b.Ticks {
		k := &b.Ticks[i]
		if len(taken.claims) == room {
			b.More = true
			break
		}
		if r.holds(k) { // its lease ran out while it runs here
			continue
		}
		v := r.judge(ctx, k, now)
		if v.others && r.leaveToOthers(b, k, before, now) {
			continue
		}
		b.expect(v.next)
		c := Claim{Tick: *k, Next: v.next, Remember: v.action == runIt && v.hold.content.Overlap == OverlapSkip}
		if v.action != putOff {
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
			r.held.Hold(taken.verdicts[i].hold)
		} else {
			taken.verdicts[i].hold = nil
		}
	}
	r.dispatch(taken.verdicts)
	for delay, list := range puts {
		for i, won := range r.claim(ctx, putOffOwner, delay, list.claims) {
			if v := list.verdicts[i]; won {
				took++
				r.l.stats.putOff.Add(1)
				r.tell(&v)
			}
		}
	}
	return took
}

const (
	// othersTime is how long a tick that this listener cannot run stays due for one that can. It is
	// longer than any default of Poll.
	othersTime = 10 * time.Second
	// mostLeft is how many ticks are left so at a time: they are in front of all others in each
	// answer of the store.
	mostLeft = mostTaken / 2
)

// leaveToOthers leaves a due tick to other listeners, for a while since this one saw it first.
func (r *round) leaveToOthers(b *Batch, k *Tick, before map[tickKey]time.Time, now time.Time) bool {
	since, seen := before[keyOf(k)]
	if !seen {
		since = time.Now()
	}
	rest := min(othersTime, r.c.UnknownDelay) - time.Since(since)
	if rest <= 0 || len(r.left) == mostLeft {
		return false
	}
	r.left[keyOf(k)] = since
	b.expect(now.Add(rest))
	return true
}

// setClock notes the store's time.
func (r *round) setClock(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.nowAt = now, time.Now()
}

// clock is the time on the store's clock, by what it has said last.
func (r *round) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.Add(time.Since(r.nowAt))
}

// expect notes a time at which something will be due.
func (b *Batch) expect(t time.Time) {
	if !t.IsZero() && (b.Next.IsZero() || t.Before(b.Next)) {
		b.Next = t
	}
}

// holds reports whether the tick is held here, and renews it then.
func (r *round) holds(k *Tick) bool {
	h, held := r.held.Get(keyOf(k))
	if held {
		r.held.Renew(r.calls, h)
	}
	return held
}

// claim claims, and asks again while there is no answer, as what was claimed by a call without an answer would otherwise wait for its
// lease to end.
func (r *round) claim(ctx context.Context, owner string, lease time.Duration, claims []Claim) []bool {
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
			r.c.Logger.Warn("schedule: claiming", "schedule", r.c.Name, "error", err)
		}
		if ctx.Err() != nil || errors.Is(err, ErrBadEntry) || errors.Is(err, ErrClosed) {
			return make([]bool, len(claims))
		}
		wake.Sleep(ctx, r.c.Backoff.Interval(attempt))
	}
}

// dispatch hands on what was claimed.
func (r *round) dispatch(verdicts []verdict) {
	var batch []*hold
	for i := range verdicts {
		v := &verdicts[i]
		if v.hold == nil {
			continue
		}
		if v.hold.tick.Owner != "" && v.hold.tick.Owner != putOffOwner {
			r.l.stats.again.Add(1)
		}
		r.tell(v)
		switch v.action {
		case leaveOut:
			r.l.stats.skipped.Add(1)
			r.end(v.hold, Finish{Remove: v.hold.remove})
		case giveUp, dropIt:
			r.l.stats.dropped.Add(1)
			r.end(v.hold, Finish{})
		default:
			if r.c.Submit == nil {
				r.queue <- v.hold // there is room: no more were asked for
			} else {
				batch = append(batch, v.hold)
			}
		}
	}
	if len(batch) > 0 {
		r.batches <- batch
	}
}

// What is put off is told at first and then each tellEach.
const (
	tellEach = time.Hour
	mostTold = 10_000 // ticks of which it is known when that was
)

// tell reports what is wrong with a tick. What is put off again and again is told at first, and
// then each hour.
func (r *round) tell(v *verdict) {
	if v.problem != "" && (v.action != putOff || r.toTell(keyOf(&v.hold.tick))) {
		job := ""
		if v.hold.content != nil {
			job = v.hold.content.Job
		}
		r.l.report(v.problem, &v.hold.tick, job, v.err)
	}
}

// toTell reports whether it is time to tell of a tick that was put off.
func (r *round) toTell(k tickKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, ok := r.told[k]; ok && now.Sub(last) < tellEach {
		return false
	}
	if len(r.told) == mostTold {
		maps.DeleteFunc(r.told, func(_ tickKey, last time.Time) bool { return now.Sub(last) > 2*tellEach })
	}
	if len(r.told) < mostTold {
		r.told[k] = now
	}
	return true
}

// judge decides what becomes of a tick.
func (r *round) judge(ctx context.Context, k *Tick, now time.Time) verdict {
	h := &hold{tick: *k, id: TickID(r.c.Name, k.ID, k.Due)}
	var spec when.Spec
	var err error
	if h.content, err = Decode(k.Payload); err == nil {
		spec, err = r.spec(h.content)
	}
	if err != nil {
		if !json.Valid(k.Payload) {
			return verdict{action: dropIt, hold: h, problem: ProblemBroken, err: err}
		}
		// A newer program may read it, or one that knows more zones.
		return verdict{action: putOff, hold: h, delay: brokenDelay, problem: ProblemBroken, err: err, others: true}
	}
	p := h.content.Misfire.plan(spec, k.Due, now)
	h.remove = p.next.IsZero()
	if problem, err := r.able(h.content); err != nil {
		v := r.putOffOrGiveUp(h, now, problem, err)
		v.others = true
		if v.action == giveUp {
			v.next = p.next
		}
		return v
	}
	v := verdict{hold: h, next: p.next}
	if k.Owner != "" && k.Owner != putOffOwner { // it has begun before
		return v
	}
	if p.late {
		v.action = leaveOut
		return v
	}
	if h.content.Overlap == OverlapSkip && !k.Last.IsZero() && !k.Last.Equal(k.Due) {
		busy, err := r.busy(ctx, h, now)
		if err != nil {
			return verdict{action: putOff, hold: h, delay: time.Second, problem: ProblemRefused, err: err}
		}
		if busy {
			v.action = leaveOut
		}
	}
	return v
}

// brokenDelay is how long an entry that cannot be read is put off.
const brokenDelay = MaxLease

// putOffOrGiveUp puts a tick off, or gives it up when it is too late for that and the entry has
// more of them.
func (r *round) putOffOrGiveUp(h *hold, now time.Time, p Problem, err error) verdict {
	if !h.remove && now.Sub(h.tick.Due) > r.c.UnknownLimit {
		return verdict{action: giveUp, hold: h, problem: ProblemGivenUp, err: err}
	}
	return verdict{action: putOff, hold: h, delay: r.c.UnknownDelay, problem: p, err: err}
}

// able returns why this listener cannot run an entry, or nil.
func (r *round) able(c *Content) (Problem, error) {
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

// mostSpecs is how many specs are remembered. Many entries that are due at once often have the same.
const mostSpecs = 1000

func (r *round) spec(c *Content) (when.Spec, error) {
	if s := r.specs[c.When]; s != nil {
		return s, nil
	}
	s, err := c.Spec()
	if err == nil {
		if len(r.specs) >= mostSpecs {
			clear(r.specs)
		}
		r.specs[c.When] = s
	}
	return s, err
}

// busy reports whether the last run has not ended.
func (r *round) busy(ctx context.Context, h *hold, now time.Time) (bool, error) {
	record, err := r.c.Results.Load(ctx, TickID(r.c.Name, h.tick.ID, h.tick.Last))
	if errors.Is(err, resultstore.ErrNotFound) {
		ttl := h.content.Meta.ResultTTL.Or(task.DefaultResultTTL)
		return now.Sub(h.tick.Last) < ttl, nil
	}
	return !record.State.Terminal(), err
}
