package natsbroker

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

const (
	// clockAge is the age of the server's time after which a delayed message asks for it again.
	clockAge = time.Minute
	// clockTimeout limits the wait for the server's time. After it the last known time is used.
	clockTimeout = time.Second
)

// serverClock is the server's clock as this process knows it. The server uses its own clock for
// schedules. serverClock holds the last time that the server reported, and when that was on this
// process's monotonic clock, because the wall clock may be wrong.
type serverClock struct {
	serverAt time.Time         // the server's time at a moment between askedAt and heardAt
	askedAt  time.Time         // on this process's monotonic clock
	heardAt  time.Time         // on this process's monotonic clock
	checked  time.Time         // when the server was asked last, with or without an answer
	session  *natsconn.Session // the connection at that time
}

// latest returns an estimate of the server's time now that is not too early.
func (c *serverClock) latest() time.Time { return c.serverAt.Add(time.Since(c.askedAt)) }

// earliest returns an estimate of the server's time now that is not too late.
func (c *serverClock) earliest() time.Time { return c.serverAt.Add(time.Since(c.heardAt)) }

// fresh reports whether the server need not be asked again: s is nil or the connection of the last
// answer, and the last question is younger than clockAge.
func (c *serverClock) fresh(s *natsconn.Session) bool {
	return (s == nil || s == c.session) && time.Since(c.checked) < clockAge
}

// askTime asks the server for its time, waits for the answer and stores it in b.clock. After an
// error it stores nothing. A server before 2.10 does not report its time: then it stores this
// process's time.
func (b *Broker) askTime(ctx context.Context) error {
	c := &serverClock{session: b.conn.Live()}
	var err error
	c.serverAt, c.askedAt, c.heardAt, err = b.conn.StreamTime(ctx, b.names.stream)
	if err != nil {
		return err
	}
	if c.serverAt.IsZero() { // a server before 2.10 does not report its time
		c.serverAt = c.askedAt.Round(0)
	}
	c.checked = c.heardAt
	b.clock.Store(c)
	return nil
}

// serverTime returns the server's clock as this process knows it. If the last answer is older than
// a minute or from another connection, one caller takes b.asking, asks again and waits for up to
// clockTimeout. Other callers get the old clock without a wait. If the question fails the caller
// gets the old clock too, and it is not asked again for a minute.
func (b *Broker) serverTime(ctx context.Context) *serverClock {
	c := b.clock.Load()
	if c.fresh(b.conn.Live()) || !b.asking.TryLock() {
		return c
	}
	defer b.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	if b.askTime(ctx) != nil {
		again := *c
		again.checked, again.session = time.Now(), b.conn.Live()
		b.clock.Store(&again)
	}
	return b.clock.Load()
}

// dueTime returns the time on the server's clock at which a message for delivery at at is due. It
// returns the zero time if the message is due now, and for a zero at. If at has a reading of the
// monotonic clock, the wait from now counts, see [broker.FromNow]; otherwise the date.
//
// For a zero at it sends nothing. Otherwise it creates the stream if that does not exist. It may
// also ask the server for its time and wait for the answer. Returns the errors of ensureStream.
func (b *Broker) dueTime(ctx context.Context, at time.Time) (time.Time, error) {
	if at.IsZero() {
		return at, nil
	}
	if _, err := b.ensureStream(ctx); err != nil { // which has asked for the time
		return time.Time{}, err
	}
	c := b.serverTime(ctx)
	d, fromNow := broker.FromNow(at)
	switch {
	case fromNow && d > 0:
		return c.latest().Add(d), nil
	case fromNow || !at.After(c.earliest()):
		return time.Time{}, nil
	}
	return at, nil
}

// untilDue returns the time from now until at, which is on the server's clock. The result may be a
// little too long, and is 0 or less for a time that has come. It does not wait for the server: if
// the known time is old, it asks for it in the background.
func (b *Broker) untilDue(at time.Time) time.Duration {
	c := b.clock.Load()
	if !c.fresh(b.conn.Live()) {
		b.background(func(ctx context.Context) { b.serverTime(ctx) })
	}
	return at.Sub(c.earliest())
}
