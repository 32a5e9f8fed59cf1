package bedrock

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// handedTime is how long after its answer a client that breaks the connection counts as one
	// that has not read it.
	handedTime = 10 * time.Second
	// giveBackTime is how long the store may take to have jobs back.
	giveBackTime = 10 * time.Second
)

// errVanished is how a connection ends if the client's system does not acknowledge a job.
var errVanished = errors.New("bedrock: the client does not acknowledge its job")

// link is the connection below TLS. It counts what is written.
type link struct {
	net.Conn
	sent atomic.Int64
}

func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.sent.Add(int64(n))
	return n, err
}

// CloseWrite tells the client that no more will come.
func (l *link) CloseWrite() error {
	if t, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

// abort closes the connection, and has the system throw away what the client has not acknowledged.
func (l *link) abort() {
	if t, ok := l.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = l.Close()
}

// handed holds the jobs in answers that the client may not have read. The connection's goroutine
// uses it, or its watch while that goroutine waits for a job.
type handed struct {
	link *link
	jobs []handedJob
	last time.Time // of the last answer with jobs

	acknowledged int64     // bytes, as far as is known
	at           time.Time // when they became more
	over         bool      // they never will again
	known        bool      // the system can tell
}

// handedJob is one job, and how many bytes had been written with its answer.
type handedJob struct {
	jobs.Handout
	end int64
}

// add notes jobs whose answer has been written.
func (h *handed) add(taken []jobs.Handout) {
	if len(taken) == 0 {
		return
	}
	h.last = time.Now()
	for i := range taken {
		h.jobs = append(h.jobs, handedJob{taken[i], h.link.sent.Load()})
	}
}

// measure asks what the client's system has acknowledged: all, if that cannot be told.
func (h *handed) measure() {
	sent := h.link.sent.Load()
	n, over, known := unacknowledged(h.link.Conn)
	if !known {
		n = 0
	}
	if now := sent - int64(n); now > h.acknowledged {
		h.acknowledged, h.at = now, time.Now()
	}
	h.over, h.known = over, known
}

// forget forgets the jobs whose answers are acknowledged.
func (h *handed) forget() {
	if len(h.jobs) == 0 {
		return
	}
	h.measure()
	if i := slices.IndexFunc(h.jobs, h.pending); i >= 0 {
		h.jobs = slices.Delete(h.jobs, 0, i)
	} else {
		h.jobs = nil
	}
}

// pending reports whether the answer with a job is not acknowledged.
func (h *handed) pending(j handedJob) bool { return j.end > h.acknowledged }

// arrived reports whether all answers with jobs are acknowledged. lost reports that they never
// will be, or that nothing more was acknowledged within that time.
func (h *handed) arrived(within time.Duration) (all, lost bool) {
	if len(h.jobs) == 0 {
		return true, false
	}
	h.measure()
	if !h.pending(h.jobs[len(h.jobs)-1]) {
		return true, false
	}
	since := h.last
	if h.at.After(since) {
		since = h.at
	}
	return false, h.over || time.Since(since) >= within
}

// await waits until all answers are acknowledged. It reports false if they will not be, or ctx
// ends.
func (h *handed) await(ctx context.Context, within time.Duration) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		all, lost := h.arrived(within)
		if all || lost {
			return all
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// tick is how long the next look at what is acknowledged may wait.
func (c *conn) tick() time.Duration { return min(handedTime, c.s.c.WriteTimeout) }

// vanished reports whether a client that sends nothing has not acknowledged its jobs for
// WriteTimeout. After handedTime it forgets jobs that are acknowledged.
func (c *conn) vanished() bool {
	if time.Since(c.handed.last) >= handedTime {
		c.handed.forget()
	}
	_, lost := c.handed.arrived(c.s.c.WriteTimeout)
	return lost
}

// takeBack gives back the jobs of the last answers if gone reports that the client cannot have
// read them. It forgets them in any case.
func (c *conn) takeBack(ctx context.Context, gone func() bool) {
	if len(c.handed.jobs) > 0 && gone() {
		c.giveBackHanded(ctx)
	}
	c.handed.jobs = nil
}

// giveBackHanded gives back the jobs of the last answers. It ends the connection first, so that
// their answers cannot arrive later.
func (c *conn) giveBackHanded(ctx context.Context) {
	if len(c.handed.jobs) == 0 {
		return
	}
	c.tcp.abort()
	for _, h := range c.handed.jobs {
		c.giveBack(ctx, []jobs.Handout{h.Handout})
	}
	c.handed.jobs = nil
}

// lost waits until all answers with jobs are acknowledged. It reports true if they will not be.
func (c *conn) lost(ctx context.Context) bool { return !c.handed.await(ctx, c.s.c.WriteTimeout) }

// gone reports whether the other end, which sends nothing any more, is closed altogether. Its
// system has then refused the answer. This system says so at the next write, even of nothing; that
// takes a round trip.
func (c *conn) gone() bool {
	if c.handed.known {
		return false // lost knows better
	}
	for _, pause := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		time.Sleep(pause)
		if _, err := c.tcp.Write(nil); err != nil {
			return true
		}
	}
	return false
}

// giveBack has jobs be as if they had not been handed out.
func (c *conn) giveBack(ctx context.Context, handed []jobs.Handout) {
	if len(handed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	for _, h := range handed {
		switch err := c.s.c.Service.GiveBack(ctx, h); {
		case err == nil:
			c.s.stats.givenBack.Add(1)
		case !errors.Is(err, jobs.ErrStale) && !errors.Is(err, jobs.ErrNotFound): // otherwise a client has ended it by its id
			c.s.c.Logger.Error("bedrock: giving back a job whose client is gone", "job", h.ID, "name", h.Name, "error", err)
		}
	}
}
