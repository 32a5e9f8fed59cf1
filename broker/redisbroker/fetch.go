package redisbroker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// claimBytes is the approximate limit of a claim, in bytes of messages.
	claimBytes = 4 << 20
	// fewDone is the number of finished claims that are collected before the server is told that they
	// are finished. Without other work they are reported at once. maxDone limits the claims of one
	// report.
	fewDone = 16
	maxDone = 500
	// firstPeek is the number of messages whose size the first claim checks, before their size is
	// known.
	firstPeek = 64
	// boundWait to 2*boundWait is the shortest wait for a rate after an empty claim.
	boundWait = 5 * time.Millisecond
)

// errNoOwner: the lease of an owner has ended.
var errNoOwner = errors.New("redis: the lease has ended")

// register creates an owner on the server: the random number under which the subscription holds
// messages until its lease ends. It creates the queue if it does not exist. It waits for the
// server. It returns the owner, which holds nothing yet, and the queue's levels, which it also
// stores in s.q.
//
// Returns errors of the server, and errAnswer for an answer of another form; the owner may exist
// then until its lease ends.
func (s *subscription) register(ctx context.Context, eval evaluator) (*owner, *levels, error) {
	sent := time.Now()
	own := rand.Int64()
	v, err := s.q.eval(ctx, eval, s.b.scripts.subscribe, s.lease.Microseconds(), own)
	if err != nil {
		return nil, nil, err
	}
	answer, status, err := parseAnswer(v)
	if err != nil || status != done {
		return nil, nil, errors.Join(errAnswer, err)
	}
	return &owner{
		number: own, lost: make(chan struct{}), until: sent.Add(s.lease), held: make(map[*delivery]struct{}),
	}, s.q.storeLevels(text(answer, 1)), nil
}

// fetch claims messages until the subscription is closed. Then it returns the messages that
// Receive has not returned to the queue, sets s.isIdle, closes s.idle and wakes keepLease. It is
// one of the subscription's two goroutines. share decides about the levels of claims. It takes
// s.mu.
func (s *subscription) fetch(share floor.Floor) {
	f := fetcher{s: s, timer: time.NewTimer(0), floor: share}
	defer f.timer.Stop()
	for f.step() {
	}
	f.returnUnreceived()
	s.mu.Lock()
	s.isIdle = true
	close(s.idle)
	s.mu.Unlock()
	s.wakeFetcher()
}

// fetcher holds the state of the claiming goroutine.
type fetcher struct {
	s            *subscription
	timer        *time.Timer
	next         time.Time // when to claim without a notification
	attempt      int       // failures in a row
	wakeups      uint64    // the subscription's wakeups before the current claim
	unknownClaim int       // the size of a claim that may have been executed; 0: no such claim
	peek         int       // how many messages the next claim checks at first
	types        string    // the last content type
	floor        floor.Floor
	bounded      bool // the last claim had bounds
	took         int  // how many messages the last claim returned
}

// longWait is the interval of claims of a subscription for which the Broker polls.
const longWait = time.Hour

// step does one of these, the first that is necessary: it returns excess messages, registers a
// new owner, repeats a claim of unknown outcome, claims messages, or waits for work. It returns
// false if the subscription is closed. It takes s.mu.
func (f *fetcher) step() bool {
	s := f.s
	s.mu.Lock()
	own, want, closed := s.owner, s.claimable(), s.isClosed
	gone := own.gone
	f.wakeups = s.wakeups
	excess := len(s.excess) > 0
	s.mu.Unlock()
	switch {
	case closed:
		return false
	case excess:
		f.recordResult(f.returnHeld(s.takeExcess()))
		return true
	case gone:
		f.recordResult(f.renewOwner())
		return true
	case f.unknownClaim > 0:
		want = f.unknownClaim
	case want == 0:
		f.wait()
		return true
	}
	f.recordResult(f.claim(own, want))
	return true
}

// recordResult records the result of a step. After an error it blocks for the backoff time, or
// until the subscription or the Broker is closed. If access was refused, Receive returns the
// error until a later step ends without that error. It takes s.mu.
func (f *fetcher) recordResult(err error) {
	s := f.s
	s.mu.Lock()
	s.err = nil
	if errors.Is(err, redisconn.ErrAccess) {
		s.err = wrap(err, "receive from", s.q.name)
		s.receivable.Notify()
	}
	s.mu.Unlock()
	if err == nil {
		f.attempt = 0
		return
	}
	wake.SleepOr(s.b.ctx, s.closed, s.b.conn.Backoff().Interval(f.attempt))
	f.attempt++
}

// wait blocks until the claiming goroutine is woken, the subscription is closed, or the next poll
// is due. In the last case it also makes the next step claim messages.
func (f *fetcher) wait() {
	s := f.s
	f.timer.Reset(time.Until(f.next))
	select {
	case <-s.wakeFetch:
	case <-s.closed:
	case <-f.timer.C:
		f.next = time.Now().Add(s.b.cfg.Poll)
		s.claimNow()
	}
}

// renewOwner registers a new owner on the server after the lease was lost, and listens on its
// channel instead of the old one. A claim of unknown outcome is forgotten. After an error the old
// owner stays, and the caller tries again later. It waits for the server. It takes s.mu.
func (f *fetcher) renewOwner() error {
	s := f.s
	own, l, err := s.register(s.b.ctx, s.b.conn.EvalOnce)
	if err != nil {
		return err
	}
	f.unknownClaim = 0
	s.mu.Lock()
	old := s.owner
	s.owner = own
	s.unread.reset(l, s.unread.all())
	s.wakeToClaim()
	s.mu.Unlock()
	s.b.stopListening(s, old)
	s.b.listenTo(s, own)
	return nil
}

// claim asks the server for up to want messages for own and stores them in the subscription. It
// waits for the server, and renews the lease if a third of it is over. It takes s.mu.
//
//   - If the server does not know own any more, own's deliveries are lost. claim returns nil, or
//     ErrNoQueue if the queue does not exist.
//   - If the answer is lost it returns an error and sets f.unknownClaim. Then the same claim is
//     repeated, and the server returns the same messages.
//   - After any other error nothing was claimed.
func (f *fetcher) claim(own *owner, want int) error {
	s := f.s
	f.unknownClaim = want
	if f.peek == 0 {
		f.peek = firstPeek
	}
	s.mu.Lock()
	place := own.claims + 1
	enough := fewDone
	if s.quiet {
		s.quiet, enough = false, 1
	}
	renew, open, finished := s.claimArgs(own, enough)
	mode := s.handoverMode(own)
	bounds := s.bounds
	s.mu.Unlock()
	picks := want
	// Bounds may cut the claim, and its picks that begin lower come first.
	if f.bounded = bounds != ""; f.bounded {
		picks = min(want, max(1, f.took))
	}
	lower, first := f.floor.Batch(picks, s.q.knownLevels().number())
	sent := time.Now()
	// without a deadline, as in a batcher
	answer, l, err := s.q.callWithLevels(context.WithoutCancel(s.b.ctx), s.b.conn.EvalOnce, s.b.scripts.claim,
		s.q.names.channels(), own.number, place, want, renew, claimBytes, f.peek, open, mode,
		lower, max(0, first-1), bounds)
	switch {
	case errors.Is(err, broker.ErrNoQueue): // another process has removed its keys
		s.mu.Lock()
		s.loseOwner(own)
		s.mu.Unlock()
		return err
	case err != nil:
		if !errors.Is(redisconn.Class(err), redisconn.ErrIndeterminate) {
			f.unknownClaim = 0
		}
		return err
	}
	f.unknownClaim = 0
	if number(answer, 0) == noOwner {
		s.mu.Lock()
		s.loseOwner(own)
		s.mu.Unlock()
		return nil
	}
	if renew > 0 {
		s.recordRenewal(own, sent)
	}
	f.acceptClaim(own, l, answer, place, finished)
	return nil
}

// claimArgs returns arguments of the next claim. renew is the time in microseconds by which to
// extend the lease, 0 if more than two thirds of the lease are left. open is the list of the
// numbers (places) of the open claims, with commas. Call it with s.mu held.
//
// If at least enough finished claims were collected, up to maxDone of them are left out of open and
// returned as finished. No message of these is held here. The server forgets them if it holds
// nothing of them either.
func (s *subscription) claimArgs(own *owner, enough int) (renew int64, open string, finished []*claim) {
	if time.Until(own.until) < s.lease*2/3 {
		renew = s.lease.Microseconds()
	}
	var b []byte
	for _, c := range own.open {
		if c.left == 0 && own.done >= enough && len(finished) < maxDone {
			finished = append(finished, c)
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, c.place, 10)
	}
	return renew, string(b), finished
}

// recordRenewal records that a call sent at the given time renewed the lease of own. The lease then
// ends s.lease after sent, but never earlier than before. It takes s.mu.
func (s *subscription) recordRenewal(own *owner, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := sent.Add(s.lease); until.After(own.until) {
		own.until = until
	}
}

// acceptClaim stores the messages of a claim's answer in the subscription. It also stores the
// levels, forgets the finished claims, and computes when to claim again. It sets s.drained if the
// server will deliver further messages by itself and no notification came during the claim.
//
// place is the number of the claim, and l holds the levels of the answer. It takes s.mu and does
// not block.
func (f *fetcher) acceptClaim(own *owner, l *levels, answer []any, place int64, finished []*claim) {
	s := f.s
	wait := s.b.cfg.Poll
	if !s.b.conn.Clustered() {
		wait = longWait // the Broker polls, see pollLoop
	}
	if due := number(answer, 1); due >= 0 {
		wait = min(wait, time.Duration(due)*time.Microsecond)
	}
	ds, bytes := s.newDeliveries(own, place, answer[4:], text(answer, 3), &f.types)
	// All waiting processes know the same due time.
	if f.bounded && len(ds) == 0 && wait < 2*boundWait {
		wait = boundWait + rand.N(boundWait)
	}
	f.next = time.Now().Add(wait)
	f.floor.Claimed(len(ds))
	f.took = len(ds)
	if len(ds) > 0 {
		f.peek = min(max(1, claimBytes/2/(bytes/len(ds)+1)), 250)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.number() != s.unread.levels.number() || l.fair != s.unread.levels.fair {
		s.unread.reset(l, s.unread.all()) // another process has declared the queue
	}
	s.unread.levels = l
	if len(finished) > 0 {
		own.open = slices.DeleteFunc(own.open, func(c *claim) bool { return slices.Contains(finished, c) })
		own.done -= len(finished)
	}
	if f.wakeups == s.wakeups && number(answer, 2) != repeated {
		s.notified = false
	}
	s.drained = number(answer, 2) == 0 && f.wakeups == s.wakeups
	if number(answer, 2) == repeated && len(ds) == 0 && own.claims+1 == place {
		own.claims++ // no message of that claim is held any more
		return
	}
	s.addHeld(own, ds)
}

// repeated is the answer to a claim that was answered before, or that the server made itself when
// it delivered messages.
const repeated = 2

// addHeld adds the deliveries ds of one claim to the held ones and wakes Receive. Those beyond a
// prefetch that has become smaller, and all after Close, become excess. The claiming goroutine is
// woken to return them.
//
// It returns false, and adds nothing, if ds is empty, the owner is lost, or this is not the
// owner's next claim. In the last case the messages are known already, or earlier ones are
// missing. Call it with s.mu held.
func (s *subscription) addHeld(own *owner, ds []*delivery) bool {
	if len(ds) == 0 || own.gone || ds[0].claim.place != own.claims+1 {
		return false
	}
	own.claims++
	own.open = append(own.open, ds[0].claim)
	for _, d := range ds {
		own.held[d] = struct{}{}
		if len(own.held) > s.limit || s.isClosed {
			s.excess = append(s.excess, d)
			continue
		}
		s.unread.add(d)
	}
	if s.unread.n > 0 {
		s.receivable.Notify()
	}
	if len(s.excess) > 0 {
		s.wakeFetcher()
	}
	return true
}

// loseOwner marks own as lost. It closes the Lost channel of its deliveries, drops those that
// Receive has not returned, and wakes the claiming goroutine. If own is lost already, it does
// nothing. It sends nothing. Call it with s.mu held.
func (s *subscription) loseOwner(own *owner) {
	if own.gone {
		return
	}
	own.gone = true
	close(own.lost)
	clear(own.held)
	left := slices.DeleteFunc(s.unread.all(), func(d *delivery) bool { return d.claim.owner == own })
	s.unread.reset(s.unread.levels, left)
	s.wakeFetcher()
}
