package bedrock

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// handedTime is the time after an answer in which a client that breaks the connection is assumed
	// not to have read it.
	handedTime = 10 * time.Second
	// mostTimeouts is the multiple of WriteTimeout that a client has for an answer with jobs while its
	// system responds.
	mostTimeouts = 40
	// giveBackTime limits the call of the store that gives a job back.
	giveBackTime = 10 * time.Second
)

// errVanished is the error of a connection whose client's system does not acknowledge a job.
var errVanished = errors.New("bedrock: the client does not acknowledge its job")

// link is the TCP connection below TLS. It counts the written bytes.
type link struct {
	net.Conn
	sent atomic.Int64
	// more decides at the end of the time for a write whether to continue the write.
	more func() bool
}

// Write writes p and adds the written bytes to l.sent. At the write deadline it asks l.more whether
// to continue. Returns the number of written bytes and the error of the connection.
func (l *link) Write(p []byte) (done int, err error) {
	for {
		n, err := l.Conn.Write(p[done:])
		done += n
		l.sent.Add(int64(n))
		if !errors.Is(err, os.ErrDeadlineExceeded) || !l.more() {
			return done, err
		}
	}
}

// outbox describes the data that the system has not sent yet, or that are not acknowledged.
type outbox struct {
	bytes int
	over  bool // the client's system will never acknowledge it
}

// CloseWrite closes the writing side of the connection, and leaves the reading side open. Returns
// errors.ErrUnsupported if the connection cannot do that.
func (l *link) CloseWrite() error {
	if t, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

// abort closes the connection at once. The system discards data that the client has not
// acknowledged, and resets the connection.
func (l *link) abort() {
	if t, ok := l.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = l.Close()
}

// handed contains the answers with jobs that the client may not have received ("pending" answers),
// and the state of their acknowledgement by the client's system. The connection's goroutine uses
// it, or its watch while that goroutine waits for a job.
type handed struct {
	link    *link
	answers []handedAnswer
	last    time.Time // time of the last answer with jobs

	acknowledged int64     // known number of acknowledged bytes
	at           time.Time // time of the last increase of acknowledged
	out          outbox
	known        bool // the system reports acknowledgements
}

// handedAnswer contains the jobs of one answer, the number of bytes written up to its end, and the
// time at which its write was begun.
type handedAnswer struct {
	jobs  []jobs.Handout
	end   int64
	begun time.Time
}

// keptAnswers is the largest capacity of handed.answers that is kept for later answers.
const keptAnswers = 4

// add records the jobs of an answer that was written; begun is the start of the write. It keeps
// taken. Without jobs it does nothing.
func (h *handed) add(taken []jobs.Handout, begun time.Time) {
	if len(taken) == 0 {
		return
	}
	h.last = time.Now()
	h.answers = append(h.answers, handedAnswer{taken, h.link.sent.Load(), begun})
}

// measure updates h.acknowledged, the number of bytes that the client's system has acknowledged,
// and h.out. If this system cannot report it, h.known is false and all written bytes count as
// acknowledged.
func (h *handed) measure() {
	sent := h.link.sent.Load()
	h.out, h.known = outgoing(h.link.Conn)
	if now := sent - int64(h.out.bytes); now > h.acknowledged {
		h.acknowledged, h.at = now, time.Now()
	}
}

// forget removes the answers that are acknowledged, up to the first pending one: their jobs are no
// longer given back. It first asks this system for the acknowledged bytes (measure). If the system
// cannot report that, all answers are removed.
func (h *handed) forget() {
	if len(h.answers) == 0 {
		return
	}
	h.measure()
	i := slices.IndexFunc(h.answers, h.pending)
	switch {
	case i >= 0:
		h.answers = slices.Delete(h.answers, 0, i)
	case cap(h.answers) <= keptAnswers:
		h.answers = slices.Delete(h.answers, 0, len(h.answers))
	default:
		h.answers = nil
	}
}

// pending reports whether an answer was not acknowledged at the last measure.
func (h *handed) pending(a handedAnswer) bool { return a.end > h.acknowledged }

// arrived measures and reports in all whether every answer with jobs is acknowledged. lost reports
// that the first pending answer will never be acknowledged. Its client's system was silent for the
// time within, or has not acknowledged the answer in mostTimeouts times that time. It does not
// block.
func (h *handed) arrived(within time.Duration) (all, lost bool) {
	if len(h.answers) == 0 {
		return true, false
	}
	h.measure()
	i := slices.IndexFunc(h.answers, h.pending)
	if i < 0 {
		return true, false
	}
	return false, h.silent(h.last, within) || time.Since(h.answers[i].begun) >= mostTimeouts*within
}

// silent reports whether the client's system has acknowledged nothing for the time within, although
// it is ready to receive. The time counts from since, or from the last acknowledgement if that is
// later. It is true at once if the connection has ended. Call measure first.
func (h *handed) silent(since time.Time, within time.Duration) bool {
	if h.at.After(since) {
		since = h.at
	}
	return h.out.over || time.Since(since) >= within && !windowShut(h.link.Conn)
}

// await blocks until all answers are acknowledged, and then returns true. Returns false if an
// answer will never be acknowledged (see arrived), or if ctx ends. It asks the system repeatedly,
// every 100 ms at least.
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

// tick returns the interval between checks of acknowledgements.
func (c *conn) tick() time.Duration { return min(handedTime, c.s.c.WriteTimeout) }

// vanished reports whether the client's system has vanished: an answer with jobs will not be
// acknowledged (see handed.arrived, with WriteTimeout). If the last such answer is handedTime old,
// it also forgets acknowledged answers. It does not block.
func (c *conn) vanished() bool {
	if time.Since(c.handed.last) >= handedTime {
		c.handed.forget()
	}
	_, lost := c.handed.arrived(c.s.c.WriteTimeout)
	return lost
}

// takeBack calls gone, which may block, if answers with jobs are recorded. If gone returns true,
// the client cannot have received the answers: it resets the connection and gives their jobs back.
// It forgets the jobs in any case.
func (c *conn) takeBack(ctx context.Context, gone func() bool) {
	if len(c.handed.answers) > 0 && gone() {
		c.giveBackHanded(ctx)
	}
	c.handed.answers = nil
}

// giveBackHanded gives back the jobs of all recorded answers and forgets them. It first resets the
// connection, so that the answers cannot arrive later. Without recorded answers it does nothing.
func (c *conn) giveBackHanded(ctx context.Context) {
	if len(c.handed.answers) == 0 {
		return
	}
	c.tcp.abort()
	for _, a := range c.handed.answers {
		for i := range a.jobs {
			c.giveBack(ctx, a.jobs[i:i+1])
		}
	}
	c.handed.answers = nil
}

// lost blocks until all answers with jobs are acknowledged, and then returns false. Returns true if
// an answer will never be acknowledged, or if ctx ends.
func (c *conn) lost(ctx context.Context) bool { return !c.handed.await(ctx, c.s.c.WriteTimeout) }

// gone reports whether a client that has closed its sending side has closed the whole connection.
// Its system then refuses the answer, and this system reports that at a later write, even of no
// bytes. It blocks for up to 51 ms.
//
// Returns false at once if the system reports acknowledgements: lost is then more precise.
func (c *conn) gone() bool {
	if c.handed.known {
		return false // lost is more precise
	}
	for _, pause := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		time.Sleep(pause)
		if _, err := c.tcp.Write(nil); err != nil {
			return true
		}
	}
	return false
}

// giveBack undoes the claims of jobs and counts them, even if ctx has ended. It blocks for at most
// giveBackTime in total and calls the service once for each job. A job that it could not give back
// stays claimed. It logs errors, except for jobs that were ended or claimed meanwhile.
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
		// otherwise another client has ended the job by its id
		case !errors.Is(err, jobs.ErrStale) && !errors.Is(err, jobs.ErrNotFound):
			c.s.c.Logger.Error("bedrock: cannot give back a job of a disconnected client", "job", h.ID, "name", h.Name, "error", err)
		}
	}
}
