package redisbroker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// claimBytes is about how many bytes of messages one claim takes.
	claimBytes = 4 << 20
	// fewDone is how many finished claims gather before the server is told of them, unless there is nothing else to do, and
	// maxDone how many it is told at once.
	fewDone = 16
	maxDone = 500
	// firstLook is how many messages a claim looks at before it knows how large they are.
	firstLook = 64
)

// errNoOwner: the lease of an owner has ended.
var errNoOwner = errors.New("redis: the lease has ended")

// register gets a number under which to hold messages, and with it the queue's levels.
func (s *subscription) register(ctx context.Context, eval evaluator) (*owner, *levels, error) {
	sent := time.Now()
	own := rand.Int64()
	v, err := s.q.eval(ctx, eval, s.b.scripts.subscribe, s.lease.Microseconds(), own)
	if err != nil {
		return nil, nil, err
	}
	answer, status, err := take(v)
	if err != nil || status != done {
		return nil, nil, errors.Join(errAnswer, err)
	}
	return &owner{
		number: own, lost: make(chan struct{}), until: sent.Add(s.lease), held: make(map[*delivery]struct{}),
	}, s.q.learn(text(answer, 1)), nil
}

// fetch claims messages until the subscription is closed, then gives back what nobody has received.
func (s *subscription) fetch() {
	f := fetcher{s: s, timer: time.NewTimer(0)}
	defer f.timer.Stop()
	for f.step() {
	}
	f.giveBack()
	s.mu.Lock()
	s.isIdle = true
	close(s.idle)
	s.mu.Unlock()
	s.prod()
}

// fetcher is the state of the claiming goroutine.
type fetcher struct {
	s       *subscription
	timer   *time.Timer
	next    time.Time // when to look although there was no word
	attempt int       // failures in a row
	words   uint64    // of more, before the claim that is under way
	doubt   int       // the size of a claim that may have been executed; 0: there is none
	look    int       // how many messages the next claim looks at first
	types   string    // the content type seen last
}

// longWait is how long a subscription waits that the Broker looks after.
const longWait = time.Hour

// step does one thing, or waits until there is something to do; false: the subscription is closed.
func (f *fetcher) step() bool {
	s := f.s
	s.mu.Lock()
	own, want, closed := s.owner, s.wants(), s.isClosed
	gone := own.gone
	f.words = s.words
	excess := len(s.excess) > 0
	s.mu.Unlock()
	switch {
	case closed:
		return false
	case excess:
		f.settle(f.back(s.unwanted()))
		return true
	case gone:
		f.settle(f.renewOwner())
		return true
	case f.doubt > 0:
		want = f.doubt
	case want == 0:
		f.wait()
		return true
	}
	f.settle(f.claim(own, want))
	return true
}

// settle waits after a failure.
func (f *fetcher) settle(err error) {
	s := f.s
	s.mu.Lock()
	s.err = nil
	if errors.Is(err, redisconn.ErrAccess) {
		s.err = wrap(err, "receive from", s.q.name)
		s.news.Notify()
	}
	s.mu.Unlock()
	if err == nil {
		f.attempt = 0
		return
	}
	wake.SleepOr(s.b.ctx, s.closed, s.b.conn.Backoff().Interval(f.attempt))
	f.attempt++
}

// wait waits for a word of more, for a free place, or for the time to look again.
func (f *fetcher) wait() {
	s := f.s
	f.timer.Reset(time.Until(f.next))
	select {
	case <-s.kick:
	case <-s.closed:
	case <-f.timer.C:
		f.next = time.Now().Add(s.b.cfg.Poll)
		s.poll()
	}
}

// renewOwner begins anew after the lease was lost.
func (f *fetcher) renewOwner() error {
	s := f.s
	own, l, err := s.register(s.b.ctx, s.b.conn.EvalOnce)
	if err != nil {
		return err
	}
	f.doubt = 0
	s.mu.Lock()
	old := s.owner
	s.owner, s.levels = own, l
	s.wake()
	s.mu.Unlock()
	s.b.ignore(s, old)
	s.b.hear(s, own)
	return nil
}

// claim asks for messages.
func (f *fetcher) claim(own *owner, want int) error {
	s := f.s
	f.doubt = want
	if f.look == 0 {
		f.look = firstLook
	}
	s.mu.Lock()
	place := own.claims + 1
	enough := fewDone
	if s.quiet {
		s.quiet, enough = false, 1
	}
	renew, open, finished := s.claims(own, enough)
	mode := s.mode(own)
	s.mu.Unlock()
	sent := time.Now()
	answer, l, err := s.q.call(context.WithoutCancel(s.b.ctx), s.b.conn.EvalOnce, s.b.scripts.claim, // as a batcher does
		s.q.names.channels(), own.number, place, want, renew, claimBytes, f.look, open, mode)
	switch {
	case errors.Is(err, broker.ErrNoQueue): // somebody has removed its keys
		s.mu.Lock()
		s.lose(own)
		s.mu.Unlock()
		return err
	case err != nil:
		if !errors.Is(redisconn.Class(err), redisconn.ErrIndeterminate) {
			f.doubt = 0
		}
		return err
	}
	f.doubt = 0
	if number(answer, 0) == noOwner {
		s.mu.Lock()
		s.lose(own)
		s.mu.Unlock()
		return nil
	}
	if renew > 0 {
		s.renewed(own, sent)
	}
	f.accept(own, l, answer, place, finished)
	return nil
}

// claims returns what a claim tells the server: by how much to renew the lease, if it is time for that; and the places of the
// claims of which something may be held, as text. Claims of which nothing is held are left out when enough have gathered, and
// returned: the server looks whether it thinks so too, and forgets them. s.mu is held.
func (s *subscription) claims(own *owner, enough int) (renew int64, open string, finished []*claim) {
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

// renewed notes that the lease was renewed by a call that was sent at a time.
func (s *subscription) renewed(own *owner, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := sent.Add(s.lease); until.After(own.until) {
		own.until = until
	}
}

// accept takes what a claim has given.
func (f *fetcher) accept(own *owner, l *levels, answer []any, place int64, finished []*claim) {
	s := f.s
	wait := s.b.cfg.Poll
	if !s.b.conn.Clustered() {
		wait = longWait // the Broker looks: see tend
	}
	if due := number(answer, 1); due >= 0 {
		wait = min(wait, time.Duration(due)*time.Microsecond)
	}
	f.next = time.Now().Add(wait)
	ds, bytes := s.deliveries(own, place, answer[4:], text(answer, 3), &f.types)
	if len(ds) > 0 {
		f.look = min(max(1, claimBytes/2/(bytes/len(ds)+1)), 250)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.bounds) != len(s.levels.bounds) {
		s.relevel(l)
	}
	s.levels = l
	if len(finished) > 0 {
		own.open = slices.DeleteFunc(own.open, func(c *claim) bool { return slices.Contains(finished, c) })
		own.done -= len(finished)
	}
	s.drained = number(answer, 2) == 0 && f.words == s.words
	if number(answer, 2) == repeated && len(ds) == 0 && own.claims+1 == place {
		own.claims++ // nothing is held any more of what that claim once gave
		return
	}
	s.hold(own, ds)
}

// repeated is what a claim answers that was answered before, or for which something was handed over.
const repeated = 2

// hold takes messages that the server has handed to an owner, and reports whether they were the next; else they are known
// already, or some before them are missing. s.mu is held.
func (s *subscription) hold(own *owner, ds []*delivery) bool {
	if len(ds) == 0 || own.gone || ds[0].claim.place != own.claims+1 {
		return false
	}
	own.claims++
	own.open = append(own.open, ds[0].claim)
	for _, d := range ds {
		own.held[d] = struct{}{}
		if s.limit == 0 || s.isClosed {
			s.excess = append(s.excess, d)
			continue
		}
		level := s.levels.of(d.message.Priority)
		s.ready[level] = append(s.ready[level], d)
		s.unread++
	}
	if s.unread > 0 {
		s.news.Notify()
	}
	if len(s.excess) > 0 {
		s.prod()
	}
	return true
}

// relevel makes room for the levels that another process has declared; s.mu is held.
func (s *subscription) relevel(l *levels) {
	ready := make([][]*delivery, max(1, len(l.bounds)))
	for _, ds := range s.ready {
		for _, d := range ds {
			level := l.of(d.message.Priority)
			ready[level] = append(ready[level], d)
		}
	}
	s.ready = ready
}

// lose ends an owner: its deliveries are lost. s.mu is held.
func (s *subscription) lose(own *owner) {
	if own.gone {
		return
	}
	own.gone = true
	close(own.lost)
	clear(own.held)
	for level := range s.ready {
		s.ready[level] = slices.DeleteFunc(s.ready[level], func(d *delivery) bool { return d.claim.owner == own })
	}
	s.unread = 0
	for _, ds := range s.ready {
		s.unread += len(ds)
	}
	s.prod()
}
