package natsbroker

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
)

const (
	clockAge = time.Minute // after which the server is asked for its time again, when a delay needs it
	clockTry = time.Second // for which its answer is waited for; then the last one goes on counting
)

// serverClock is the server's clock as this process knows it. The server keeps its schedules by it.
// It holds the last time that the server has told, and when that was by this process's monotonic
// clock: the clock on the wall may be wrong.
type serverClock struct {
	told    time.Time         // between asked and heard
	asked   time.Time         // on this process's monotonic clock
	heard   time.Time         // the same
	checked time.Time         // when the server was asked last, with or without an answer
	session *natsconn.Session // the connection at that time
}

// latest is the server's time now, or a little later.
func (c *serverClock) latest() time.Time { return c.told.Add(time.Since(c.asked)) }

// earliest is the server's time now, or a little earlier.
func (c *serverClock) earliest() time.Time { return c.told.Add(time.Since(c.heard)) }

// fresh reports whether the server need not be asked again.
func (c *serverClock) fresh(s *natsconn.Session) bool {
	return (s == nil || s == c.session) && time.Since(c.checked) < clockAge
}

// askTime asks the server for its time.
func (b *Broker) askTime(ctx context.Context) error {
	c := &serverClock{session: b.conn.Live()}
	var err error
	c.told, c.asked, c.heard, err = b.conn.StreamTime(ctx, b.names.stream)
	if err != nil {
		return err
	}
	if c.told.IsZero() { // a server before 2.10 does not tell
		c.told = c.asked.Round(0)
	}
	c.checked = c.heard
	b.clock.Store(c)
	return nil
}

// now returns the server's clock. When the last answer is old, or of another connection, one caller
// asks again; others do not wait for that.
func (b *Broker) now(ctx context.Context) *serverClock {
	c := b.clock.Load()
	if c.fresh(b.conn.Live()) || !b.asking.TryLock() {
		return c
	}
	defer b.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, clockTry)
	defer cancel()
	if b.askTime(ctx) != nil {
		again := *c
		again.checked, again.session = time.Now(), b.conn.Live()
		b.clock.Store(&again)
	}
	return b.clock.Load()
}

// due returns when a message may be seen, on the server's clock; zero: at once.
func (b *Broker) due(ctx context.Context, at time.Time) (time.Time, error) {
	if at.IsZero() {
		return at, nil
	}
	if _, err := b.ready(ctx); err != nil { // which has asked for the time
		return time.Time{}, err
	}
	c := b.now(ctx)
	d, fromNow := broker.FromNow(at)
	switch {
	case fromNow && d > 0:
		return c.latest().Add(d), nil
	case fromNow || !at.After(c.earliest()):
		return time.Time{}, nil
	}
	return at, nil
}

// rest returns how long from now a time on the server's clock is, maybe a little too long. It does
// not wait for the server.
func (b *Broker) rest(at time.Time) time.Duration {
	c := b.clock.Load()
	if !c.fresh(b.conn.Live()) {
		b.background(func(ctx context.Context) { b.now(ctx) })
	}
	return at.Sub(c.earliest())
}
