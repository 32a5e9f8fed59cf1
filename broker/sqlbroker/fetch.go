package sqlbroker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/floor"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// claimBytes is the approximate limit of a claim, in bytes of bodies.
	claimBytes = 8 << 20
	// firstClaim limits the first claim, before the size of the messages is known.
	firstClaim = 64
	// recoverScan is the number of messages that the search for a claim of unknown outcome looks
	// at.
	recoverScan = 10_000
)

// fetcher is the state of the goroutine that claims messages.
type fetcher struct {
	s       *subscription
	timer   *time.Timer
	next    time.Time // when to claim without a notification
	attempt int       // failures in a row
	size    int       // the average body of the last claim; -1: unknown
	unknown []*claim  // claims of unknown outcome
	short   bool      // the last claim found fewer messages than it wanted
	expects bool      // a message is due at next
	polls   bool      // the next claim follows from nothing but the passed time

	levels []int64 // in the order in which the current claim looks at them
	share  floor.Floor
	got    int // messages of the current call of claim
	took   int // those of the last call that got some

	// The cursor of each level, for PostgreSQL: the last claimed message. Claims from the beginning
	// would look at all messages that are held or were removed recently.
	due, seq []int64
	moved    bool // a cursor is not at the beginning
	reset    time.Time

	ring  *ring // of a fair queue, which has no cursors; nil for others
	rates rates // with bounds

	bounded bool // a claim had bounds

	// A long transaction of any session keeps all messages that were removed meanwhile, so a
	// claim from the first message takes long too.
	sweep time.Duration // the time of the last claim from the first message
	swept time.Time     // when it was sent
	floor int64         // the queue had no message due before, apart from held and late ones
}

// claim is one claim: a random token that fences its settlements, and the time when it was sent.
type claim struct {
	token int64
	sent  time.Time
	want  int
	wake  time.Duration // the time until the next message is due
	now   int64         // the database's time, for PostgreSQL
	picks []pick        // from a fair queue: the keys, and how many messages of each

	bounds *broker.Bounds // nil: without bounds
	bound  bool           // its messages are marked as bound

	// For a claim of unknown outcome: when to look for its messages, and how often that was done.
	look  time.Time
	looks int
}

// lookAfter lists when the messages of a claim of unknown outcome are looked for, after the
// previous time. A server that has lost the connection may execute the claim a moment later.
var lookAfter = [...]time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 4 * time.Second}

// fetch claims messages until the subscription is closed. Then it returns the messages that Receive
// has not returned to the queue, sets s.isIdle and closes s.idle. It is one of the subscription's
// two goroutines. It takes s.mu.
func (s *subscription) fetch() {
	f := fetcher{s: s, timer: time.NewTimer(0), size: -1, share: floor.New(s.floor)}
	defer f.timer.Stop()
	f.floor = math.MinInt64
	n := s.q.count()
	f.due, f.seq = make([]int64, n), make([]int64, n)
	f.begin(0)
	if s.q.text.fair {
		f.ring = newRing(s.q.turns)
	}
	f.rewind()
	for f.step() {
	}
	s.watcher.Close()
	f.returnUnreceived()
	f.dropLastRates()
	s.mu.Lock()
	s.isIdle = true
	close(s.idle)
	s.mu.Unlock()
	s.wakeLease.Notify()
}

// step does one of these, the first that is necessary: it returns excess messages, looks for the
// messages of a claim of unknown outcome, claims messages, or waits for work. An error of the step
// goes to recordResult, which then waits for the backoff time.
//
// It returns true if there may be more to do, and false if the subscription or the Broker is closed
// and no excess is left. It waits for the database. It takes s.mu, but does not hold it while it
// waits.
func (f *fetcher) step() bool {
	s := f.s
	s.mu.Lock()
	want, closed, excess := s.claimable(), s.isClosed, s.excess
	s.excess = nil
	s.mu.Unlock()
	lost := f.lostClaim(time.Now())
	switch {
	case len(excess) > 0:
		f.recordResult(f.returnHeld(excess))
	case closed || s.b.life.Err() != nil:
		return false
	case lost != nil:
		f.recordResult(f.recover(lost))
	case want == 0:
		f.wait()
	default:
		f.recordResult(f.claim(want))
	}
	return true
}

// recordResult records the result of a step. After an error it blocks for the backoff time, or
// until the subscription or the Broker is closed. If access was refused, Receive returns the error
// until a later step ends without that error. It takes s.mu.
func (f *fetcher) recordResult(err error) {
	s := f.s
	err = wrap(err, "receive from", s.q.name)
	s.mu.Lock()
	s.err = nil
	if errors.Is(err, broker.ErrAccess) {
		s.err = err
		s.receivable.Notify()
	}
	s.mu.Unlock()
	if err == nil {
		f.attempt = 0
		return
	}
	if f.attempt == 0 && classOf(err) != broker.ErrUnavailable && classOf(err) != broker.ErrIndeterminate { //nolint:errorlint // classOf returns the sentinel itself
		s.b.cfg.Logger.WarnContext(s.b.life, "sql: no messages can be claimed; it is repeated", "queue", s.q.name, "error", err)
	}
	wake.SleepOr(s.b.life, s.closed, s.b.conn.Interval(f.attempt))
	f.attempt++
}

// wait blocks until the goroutine has work: there is room for messages, a notification came, a poll
// is due, or a claim of unknown outcome must be looked for. It also returns when the subscription
// or the Broker is closed.
//
// After a notification or a poll it sets s.drained to false, and the next claim begins at the first
// message. It takes s.mu, but does not hold it while it waits.
func (f *fetcher) wait() {
	s := f.s
	next := f.next
	for _, c := range f.unknown {
		if c.look.Before(next) {
			next = c.look
		}
	}
	f.timer.Reset(time.Until(next))
	f.polls = false
	select {
	case <-s.wakeFetch:
		return
	case <-s.closed:
		return
	case <-s.b.life.Done():
		return
	case <-s.watcher.C():
	case now := <-f.timer.C:
		if now.Before(f.next) {
			return // to look for a lost claim
		}
		f.polls, f.next = !f.expects, s.b.nextPoll(now)
	}
	f.rewind()
	s.mu.Lock()
	s.drained = false
	s.mu.Unlock()
}

// lostClaim returns a claim of unknown outcome whose messages must be looked for now, or nil. It
// changes nothing.
func (f *fetcher) lostClaim(now time.Time) *claim {
	for _, c := range f.unknown {
		if !c.look.After(now) {
			return c
		}
	}
	return nil
}

// recover looks for the messages of c, a claim whose answer was lost, and stores them in the
// subscription. If it finds no message it looks again later, as lookAfter says. After the last
// look, or a lease after the claim, it removes c from f.unknown: its messages go back when their
// lease ends.
//
// It waits for the database, until the lease ends at most, and returns its errors; c is looked for
// again then. It takes s.mu, but does not hold it while it waits.
func (f *fetcher) recover(c *claim) error {
	s := f.s
	var rows []stored
	if time.Since(c.sent) < s.lease {
		ctx, cancel := context.WithDeadline(s.b.calls, c.sent.Add(s.lease))
		defer cancel()
		err := s.b.conn.View(ctx, func(ctx context.Context, tx *sqlconn.Tx) error {
			var err error
			rows, err = f.lookFor(ctx, tx, c)
			return err
		})
		if err != nil {
			return err
		}
		c.looks++
	}
	if len(rows) == 0 && time.Since(c.sent) < s.lease && c.looks < len(lookAfter) {
		c.look = time.Now().Add(lookAfter[c.looks])
		return nil
	}
	f.unknown = slices.DeleteFunc(f.unknown, func(other *claim) bool { return other == c })
	f.rewind()
	s.mu.Lock()
	defer s.mu.Unlock()
	f.add(c, rows)
	return nil
}

// lookFor returns the messages of c, by their token. It returns errors of the database.
func (f *fetcher) lookFor(ctx context.Context, tx *sqlconn.Tx, c *claim) ([]stored, error) {
	s := f.s
	args := []any{s.q.id, c.token, recoverScan}
	if f.ring != nil && s.b.postgres() {
		args = []any{s.q.id, c.token, recoverScan / len(c.picks), c.picks[0].level, keysOf(c.picks)}
	}
	found, err := tx.Query(ctx, s.q.text.recover, args...)
	if err != nil {
		return nil, err
	}
	return scan(found, nil)
}

// accept stores the messages of a claim in the subscription. It moves the cursor of PostgreSQL
// behind them, and sets f.next, the time of the next poll. If the claim was short, which means that
// it found fewer messages than it wanted, the next one begins at the first message. If it also
// began there, it sets s.drained: no claim is made until a notification or poll. It takes s.mu.
func (f *fetcher) accept(c *claim, rows []stored, short bool) {
	s := f.s
	slices.SortFunc(rows, func(x, y stored) int {
		return cmp.Or(cmp.Compare(*x.level, *y.level), cmp.Compare(*x.due, *y.due), cmp.Compare(*x.seq, *y.seq))
	})
	f.short = short
	bytes := 0
	for i := range rows {
		r := &rows[i]
		bytes += len(r.body)
		if s.b.postgres() {
			f.due[*r.level], f.seq[*r.level] = *r.due, *r.seq
		}
	}
	if len(rows) > 0 {
		f.size = bytes / len(rows)
	}
	now := time.Now()
	f.next, f.expects = s.b.nextPoll(now), false
	if due := now.Add(c.wake); c.wake > 0 && due.Before(f.next) {
		f.next, f.expects = due, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if short && !f.moved && c.bounds == s.bounds { // otherwise SetBounds may allow more
		s.drained = true
	}
	f.moved = f.ring == nil && s.b.postgres() && len(rows) > 0
	if short {
		if f.moved = false; c.now > 0 {
			f.floor = c.now - lateCommit.Microseconds()
		}
		f.rewind()
	}
	f.add(c, rows)
}

// add adds the messages of a claim to the held ones and wakes Receive. Those above the prefetch, or
// all if the subscription is closed, become excess. Call it with s.mu held.
func (f *fetcher) add(c *claim, rows []stored) {
	s := f.s
	all, now := make([]delivery, len(rows)), time.Now()
	for i := range rows {
		d := &all[i]
		d.sub, d.token, d.level, d.count = s, c.token, int(*rows[i].level), int(*rows[i].deliveries)
		d.claimed, d.until, d.lost = now, c.sent.Add(s.lease), make(chan struct{})
		rows[i].fill(&d.message)
		s.held[d] = struct{}{}
		if len(s.held) > s.limit || s.isClosed {
			s.excess = append(s.excess, d)
			continue
		}
		s.unread.add(d)
	}
	if s.unread.n > 0 {
		s.receivable.Notify()
	}
}

// returnUnreceived returns all messages that Receive has not returned to the queue, at the end of
// the claiming. It first looks for the messages of claims of unknown outcome. It blocks, and
// repeats after errors, until the leases have ended or the Broker is closed: then the messages go
// back by themselves. It takes s.mu, but does not hold it while it waits.
func (f *fetcher) returnUnreceived() {
	s := f.s
	for attempt := 0; ; attempt++ {
		var err error
		for _, c := range slices.Clone(f.unknown) {
			err = errors.Join(err, f.recover(c))
		}
		s.mu.Lock()
		ds := s.excess
		s.excess = nil
		for d := s.unread.take(); d != nil; d = s.unread.take() { // unlinks d: lose may follow
			ds = append(ds, d)
		}
		s.mu.Unlock()
		if err = errors.Join(err, f.returnHeld(ds)); err == nil || !s.b.pause(s.b.life, attempt) {
			return
		}
	}
}

// returnHeld returns the messages ds, which Receive has not returned, to the queue, and marks them
// as settled. The delivery does not count. It skips messages whose lease has ended. It waits for
// the database and returns its error; after that ds are excess again. It takes s.mu, but does not
// hold it while it waits.
func (f *fetcher) returnHeld(ds []*delivery) error {
	s := f.s
	ds = slices.DeleteFunc(ds, func(d *delivery) bool { return !d.alive(time.Now()) })
	if len(ds) == 0 {
		return nil
	}
	err := s.giveBack(s.b.calls, ds, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.excess = append(s.excess, ds...)
		return err
	}
	for _, d := range ds {
		d.state = settled
		delete(s.held, d)
		s.refund(d)
	}
	return nil
}
