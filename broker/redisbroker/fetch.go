package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/redisconn"
)

const (
	// claimBytes is about how many bytes of messages one claim takes.
	claimBytes = 4 << 20
	// fewDone is how many finished claims gather before the server is told of them, and maxDone how many it is told at once.
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
	v, err := s.q.eval(ctx, eval, s.b.scripts.subscribe, s.lease.Microseconds())
	if err != nil {
		return nil, nil, err
	}
	answer, status, err := take(v)
	if err != nil || status != done {
		return nil, nil, errors.Join(errAnswer, err)
	}
	return &owner{
		number: number(answer, 2), lost: make(chan struct{}), until: sent.Add(s.lease), held: make(map[*delivery]struct{}),
	}, s.q.learn(text(answer, 1)), nil
}

// fetch claims messages until the subscription is closed, then gives back what nobody has received.
func (s *subscription) fetch() {
	f := fetcher{s: s, timer: time.NewTimer(0)}
	defer f.timer.Stop()
	for f.step() {
	}
	s.b.mute(s)
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

// step does one thing, or waits until there is something to do; false: the subscription is closed.
func (f *fetcher) step() bool {
	s := f.s
	s.mu.Lock()
	own, want, closed := s.owner, s.wants(), s.isClosed
	gone := own.gone
	f.words = s.words
	s.mu.Unlock()
	switch {
	case closed:
		return false
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
		signal(s.news)
	}
	s.mu.Unlock()
	if err == nil {
		f.attempt = 0
		return
	}
	t := time.NewTimer(s.b.cfg.Backoff.Delay(f.attempt))
	defer t.Stop()
	f.attempt++
	select {
	case <-t.C:
	case <-s.closed:
	case <-s.b.ctx.Done():
	}
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
		s.mu.Lock()
		s.drained = false
		s.mu.Unlock()
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
	defer s.mu.Unlock()
	s.owner, s.levels, s.drained = own, l, false
	signal(s.kick)
	return nil
}

// claim asks for messages.
func (f *fetcher) claim(own *owner, want int) error {
	s := f.s
	f.doubt = want
	if f.look == 0 {
		f.look = firstLook
	}
	renew, open, finished := s.claims(own)
	args := make([]any, 0, 8+len(finished))
	args = append(args, s.q.names.channel(), own.number, own.claims+1, want, renew, claimBytes, f.look, open)
	for _, c := range finished {
		args = append(args, c.name)
	}
	sent := time.Now()
	answer, l, err := s.q.call(s.b.ctx, s.b.conn.EvalOnce, s.b.scripts.claim, args...)
	switch {
	case errors.Is(err, broker.ErrNoQueue): // somebody has removed its keys
		s.mu.Lock()
		s.lose(own)
		s.mu.Unlock()
		return err
	case err != nil:
		if redisconn.Class(err) != redisconn.ErrIndeterminate {
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
	f.accept(own, l, answer, finished)
	return nil
}

// claims returns what a claim tells the server: by how much to renew the lease, if it is time for that; the places of the
// claims that the server keeps, as text; and those of them of which nothing is held, when they have gathered: it can forget them.
func (s *subscription) claims(own *owner) (renew int64, open string, finished []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Until(own.until) < s.lease*2/3 {
		renew = s.lease.Microseconds()
	}
	done := 0
	for _, c := range own.open {
		if c.left == 0 {
			done++
		}
	}
	var b []byte
	for _, c := range own.open {
		if c.left == 0 && done >= fewDone && len(finished) < maxDone {
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
func (f *fetcher) accept(own *owner, l *levels, answer []any, finished []*claim) {
	s := f.s
	wait := s.b.cfg.Poll
	if due := number(answer, 1); due >= 0 {
		wait = min(wait, time.Duration(due)*time.Microsecond)
	}
	f.next = time.Now().Add(wait)
	ds := f.deliveries(own, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.bounds) != len(s.levels.bounds) {
		s.relevel(l)
	}
	s.levels = l
	if len(finished) > 0 {
		own.open = slices.DeleteFunc(own.open, func(c *claim) bool { return slices.Contains(finished, c) })
	}
	s.drained = number(answer, 2) == 0 && f.words == s.words
	if len(ds) > 0 {
		own.claims++
		own.open = append(own.open, ds[0].claim)
		if own.gone { // it has come too late
			return
		}
		for _, d := range ds {
			own.held[d] = struct{}{}
			level := l.of(d.message.Priority)
			s.ready[level] = append(s.ready[level], d)
		}
		s.unread += len(ds)
		signal(s.news)
	}
}

// deliveries makes deliveries of an answer.
func (f *fetcher) deliveries(own *owner, answer []any) []*delivery {
	const from = 4
	n := (len(answer) - from) / 2
	if n <= 0 {
		return nil
	}
	all := make([]delivery, n)
	ds := make([]*delivery, n)
	c := &claim{owner: own, place: own.claims + 1, left: n}
	c.name = strconv.FormatInt(own.number, 10) + "." + strconv.FormatInt(c.place, 10)
	bytes := 0
	for i := range all {
		d := &all[i]
		d.sub, d.claim, d.count = f.s, c, 1
		d.key = text(answer, from+2*i)
		value := text(answer, from+2*i+1)
		bytes += len(value)
		decode(&d.message, d.key, value, &f.types)
		ds[i] = d
	}
	for s := range strings.SplitSeq(text(answer, 3), " ") {
		place, count, _ := strings.Cut(s, ":")
		i, err := strconv.Atoi(place)
		c, cerr := strconv.Atoi(count)
		if err == nil && cerr == nil && i >= 0 && i < n {
			all[i].count = c + 1
		}
	}
	f.look = min(max(1, claimBytes/2/(bytes/n+1)), 250)
	return ds
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

// giveBack gives back what nobody has received, at the end of the claiming.
func (f *fetcher) giveBack() {
	s := f.s
	for {
		s.mu.Lock()
		own := s.owner
		var ds []*delivery
		for level, list := range s.ready {
			ds = append(ds, list...)
			s.ready[level] = nil
		}
		s.unread = 0
		gone := own.gone
		s.mu.Unlock()
		if gone || len(ds) == 0 && f.doubt == 0 {
			return
		}
		if len(ds) > 0 {
			if err := s.giveBack(s.b.ctx, ds, false); err != nil {
				return // the lease ends
			}
			s.mu.Lock()
			for _, d := range ds {
				d.state = settled
				s.drop(d)
				s.finish(d)
			}
			s.mu.Unlock()
		}
		// What a claim without an answer has taken can be asked for.
		for f.doubt > 0 && !s.isLost(own) {
			if err := f.claim(own, f.doubt); err != nil && !s.b.pause(s.b.ctx, f.attempt) {
				return
			}
			f.attempt++
		}
	}
}

func (s *subscription) isLost(own *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.gone
}

// giveBack gives messages back to the front of the queue; received tells whether they were handed out.
func (s *subscription) giveBack(ctx context.Context, ds []*delivery, received bool) error {
	counts := 0
	if received {
		counts = 1
	}
	for part := range slices.Chunk(ds, maxBatch) {
		args := make([]any, 0, 1+4*len(part))
		args = append(args, s.q.names.channel())
		for _, d := range part {
			args = append(args, d.key, d.claim.name, 0, counts)
		}
		if _, _, err := s.q.call(ctx, s.b.conn.Eval, s.b.scripts.release, args...); err != nil {
			return wrap(err, "give back to", s.q.name)
		}
	}
	return nil
}

// leave ends an owner on the server, which gives back whatever it may still hold.
func (s *subscription) leave(ctx context.Context, own *owner) error {
	for {
		answer, _, err := s.q.call(ctx, s.b.conn.Eval, s.b.scripts.leave, s.q.names.channel(), own.number)
		if errors.Is(err, broker.ErrNoQueue) {
			return nil
		}
		if err != nil {
			return wrap(err, "leave", s.q.name)
		}
		if number(answer, 1) == 1 {
			return nil
		}
	}
}

// keep renews the lease until nothing is held any more after Close, and tells when it is lost.
func (s *subscription) keep() {
	every := s.lease / 3
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		s.mu.Lock()
		own := s.owner
		if s.isIdle && (own.gone || len(own.held) == 0) {
			s.mu.Unlock()
			s.end(own)
			return
		}
		now := time.Now()
		if !own.gone && !own.alive(now) {
			s.lose(own)
		}
		left := own.until.Sub(now)
		renew := !own.gone && left <= s.lease*2/3
		idle := s.isIdle
		s.mu.Unlock()
		wait := every
		if renew {
			if err := s.renew(own); err != nil {
				wait = min(every/4, left)
			}
		} else if left > 0 {
			wait = min(every, max(left-s.lease*2/3, time.Millisecond))
		}
		t.Reset(wait)
		kick := s.kick
		if !idle { // it is the claiming goroutine's
			kick = nil
		}
		select {
		case <-t.C:
		case <-kick:
		case <-s.idleOr(idle):
		case <-s.b.ctx.Done():
			s.mu.Lock()
			s.lose(s.owner)
			s.mu.Unlock()
			s.end(own)
			return
		}
	}
}

// idleOr is closed when the claiming has ended, unless that is known already.
func (s *subscription) idleOr(known bool) <-chan struct{} {
	if known {
		return nil
	}
	return s.idle
}

// renew renews an owner's lease.
func (s *subscription) renew(own *owner) error {
	ctx, cancel := context.WithDeadline(s.b.ctx, own.until)
	defer cancel()
	sent := time.Now()
	v, err := s.q.eval(ctx, s.b.conn.EvalOnce, s.b.scripts.renew, own.number, s.lease.Microseconds())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v != int64(1) {
		s.lose(own)
		return fmt.Errorf("%w: %d", errNoOwner, own.number)
	}
	if until := sent.Add(s.lease); until.After(own.until) {
		own.until = until
	}
	return nil
}

// end ends a closed subscription of which nothing is held any more.
func (s *subscription) end(own *owner) {
	b := s.b
	if !s.isLost(own) && s.acks.flush(b.ctx) == nil {
		_ = s.leave(b.ctx, own)
	}
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
}
