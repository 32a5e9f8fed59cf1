package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/receive"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// window is how many messages an unlimited subscription asks for in advance.
	window = 1000
	// pullExpires is how long the server keeps a request for messages, pullHeartbeat how often it shows in between that it
	// still has it, and silence after what time it is believed to have lost it.
	pullExpires   = 60 * time.Second
	pullHeartbeat = 5 * time.Second
	silence       = 12 * time.Second
	// lastCall is how long a request that the server is just answering may take before it is taken back.
	lastCall = 50 * time.Millisecond
	// lookPause is the time between two questions whether more urgent messages are left.
	lookPause = 20 * time.Millisecond
	// maxDoubts is how many answers in a row are not believed: see agrees.
	maxDoubts = 2
)

var (
	errConsumerGone = errors.New("the consumer is missing")
	errSilent       = errors.New("the server has lost the request for messages")
)

// level pulls from the consumer of one level. Its fields are guarded by the subscription's mutex.
type level struct {
	s      *subscription
	index  int
	urgent bool

	want      int // its part of the prefetch
	held      receive.Held[delivery]
	unsettled int    // held, handed out, or on their way elsewhere
	waiting   uint64 // what the server had beyond the last message, or when it was last asked
	handed    uint64 // how many messages the consumer had handed out, to anybody, with the last that came here
	looking   bool
	line      *line
	created   time.Time   // the consumer
	wake      wake.Signal // there may be something to ask for
	resets    chan chan struct{}
}

// line is an inbox through which messages come; there is a new one after each loss, since the server may keep requests of an
// old one.
type line struct {
	lv          *level
	sess        *natsconn.Session
	sub         *nats.Subscription
	outstanding int // asked for and not come
	broken      chan error
	gone        chan struct{}
	seen        atomic.Int64 // when the server was last heard of, in Unix nanoseconds
}

func newLevel(s *subscription, index, want int) *level {
	return &level{s: s, index: index, want: want, wake: wake.New(), resets: make(chan chan struct{})}
}

// room is how many messages may be asked for now; s.mu is held. A little room is left unused while a request is under way, so
// that not every settlement costs a request.
func (lv *level) room() int {
	l := lv.line
	if l == nil || lv.want == 0 {
		return 0
	}
	if lv.want == unlimited {
		if n := window - l.outstanding - lv.held.Len(); n >= window/2 {
			return n
		}
		return 0
	}
	n := lv.want - lv.unsettled - l.outstanding
	if n <= 0 || l.outstanding > 0 && n < lv.want/4 {
		return 0
	}
	return n
}

// poke wakes the level if there is something to ask for; s.mu is held.
func (lv *level) poke() {
	if lv.room() > 0 {
		lv.wake.Notify()
	}
}

// run keeps a line open until nothing is to be fetched any more.
func (lv *level) run() {
	s := lv.s
	var pauses task.Backoff
	known := true // Subscribe has just seen to the consumer
	for attempt := 0; s.fetch.Err() == nil; attempt++ {
		begin := time.Now()
		err := lv.serve(known)
		known = false
		switch {
		case err == nil: // the line was ended on purpose
			attempt = -1
			continue
		case s.fetch.Err() != nil:
			return
		case errors.Is(err, natsconn.ErrAccess), errors.Is(err, broker.ErrNoQueue), errors.Is(err, broker.ErrMalformed):
			s.failed(err)
		case errors.Is(err, natsconn.ErrTooMany): // the consumer was deleted, and others have taken its place
			s.b.tellTooMany(s.fetch, s.q, err)
		case time.Since(begin) > time.Second:
			attempt = 0
		}
		if !s.b.pause(s.fetch, pauses.Interval(attempt)) {
			return
		}
	}
}

// ensure makes the consumer again if it was deleted, and its lease what this subscription reckons with.
func (lv *level) ensure() error {
	s := lv.s
	info, err := s.b.ensureConsumer(s.fetch, s.q, lv.index, s.lease)
	if err != nil {
		return err
	}
	s.mu.Lock()
	lv.handed = info.Delivered.Consumer
	s.mu.Unlock()
	if !info.Created.Equal(lv.created) {
		s.b.consumerGone(s.fetch, s.q, lv.index)
		lv.created = info.Created
		s.b.queues.Delete(s.q.name) // it may have gone with its stream
		if _, err := s.b.queue(s.fetch, s.q.name); err != nil {
			return err
		}
	}
	return nil
}

// serve opens a line and asks for messages until the line or the connection is lost.
func (lv *level) serve(known bool) error {
	s := lv.s
	for lv.stopped() {
		known = false // somebody may change the consumer meanwhile
		select {
		case <-lv.wake:
		case <-s.fetch.Done():
			return nil
		}
	}
	sess, err := s.b.conn.Session(s.fetch)
	if err != nil {
		return err
	}
	if err := s.b.outbox.connected(s.fetch, sess); err != nil {
		return err
	}
	if !known {
		if err := lv.ensure(); err != nil {
			return err
		}
	}
	l := &line{lv: lv, sess: sess, broken: make(chan error, 1), gone: make(chan struct{})}
	l.seen.Store(time.Now().UnixNano())
	inbox := nats.NewInbox()
	if l.sub, err = sess.NATS.Subscribe(inbox, l.handle); err != nil {
		return natsconn.Classify(err)
	}
	if err := l.sub.SetPendingLimits(-1, -1); err != nil { // the requests bound them
		return natsconn.Classify(err)
	}
	s.mu.Lock()
	lv.line = l
	s.mu.Unlock()
	defer l.close()
	ask := "$JS.API.CONSUMER.MSG.NEXT." + s.b.names.stream + "." + s.b.names.consumer(s.q.name, lv.index)
	t := time.NewTicker(pullHeartbeat)
	defer t.Stop()
	for first := true; ; first = false {
		s.mu.Lock()
		n := lv.room()
		l.outstanding += n
		if first && s.line.Fault() != nil {
			s.line.Fail(nil)
		}
		busy := l.outstanding > 0
		s.mu.Unlock()
		if n > 0 {
			l.seen.Store(time.Now().UnixNano())
			if err := sess.NATS.PublishRequest(ask, inbox, pullRequest(n)); err != nil {
				return natsconn.Classify(err)
			}
		}
		select {
		case <-lv.wake:
		case done := <-lv.resets:
			l.end(s.fetch)
			close(done)
			return nil
		case err := <-l.broken:
			return err
		case <-sess.Done():
			return natsconn.ErrUnavailable
		case <-s.fetch.Done():
			return nil
		case now := <-t.C:
			if busy && now.UnixNano()-l.seen.Load() > int64(silence) {
				return errSilent
			}
		}
	}
}

// stopped reports whether nothing is to be fetched.
func (lv *level) stopped() bool {
	lv.s.mu.Lock()
	defer lv.s.mu.Unlock()
	return lv.want == 0
}

// pullRequest asks for up to n messages.
func pullRequest(n int) []byte {
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, pullExpires.Nanoseconds(), pullHeartbeat.Nanoseconds())
}

// end takes back what was asked for: when it returns everything that the server has sent has come. A server that is just
// sending is given a moment for it, since what it sends while it reads the goodbye would be missed, and come again only
// when the lease is over.
func (l *line) end(ctx context.Context) {
	s := l.lv.s
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for begin := time.Now(); ; <-t.C {
		s.mu.Lock()
		left := l.outstanding
		s.mu.Unlock()
		quiet := time.Now().UnixNano()-l.seen.Load() > int64(5*time.Millisecond)
		if left == 0 || quiet || time.Since(begin) > lastCall || l.ended() {
			break
		}
	}
	if l.ended() || l.sub.Drain() != nil {
		return
	}
	_ = s.b.conn.Flush(ctx) // it fails with the connection, and then nothing more comes
}

func (l *line) ended() bool {
	select {
	case <-l.sess.Done():
		return true
	default:
		return false
	}
}

// close ends the line when everything that came through it has been taken.
func (l *line) close() {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for begin := time.Now(); time.Since(begin) < time.Second; <-t.C {
		if n, _, err := l.sub.Pending(); err != nil || n == 0 {
			break
		}
	}
	_ = l.sub.Unsubscribe() // it may have ended
	s := l.lv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l.lv.line = nil
	l.outstanding = 0
	close(l.gone)
}

// setWant changes the level's part of the prefetch. What was asked for beyond it is taken back. With 0 the line is ended: to
// others the consumer looks unused then, and they may shorten its lease, which the next line sees to.
func (lv *level) setWant(ctx context.Context, n int) error {
	s := lv.s
	s.mu.Lock()
	lv.want = n
	s.mu.Unlock()
	lv.wake.Notify()
	for {
		s.mu.Lock()
		l := lv.line
		if l == nil || n != 0 && (l.outstanding == 0 || lv.unsettled+l.outstanding <= n) {
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		done := make(chan struct{})
		select {
		case lv.resets <- done:
			select {
			case <-done:
			case <-l.gone:
			case <-ctx.Done():
				return unavailable(ctx)
			}
		case <-l.gone:
		case <-s.life.Done():
			return nil
		case <-ctx.Done():
			return unavailable(ctx)
		}
	}
}

// look asks the server whether more urgent messages are left, unless that is under way; s.mu is held.
func (lv *level) look() {
	if lv.looking || lv.s.fetch.Err() != nil {
		return
	}
	lv.looking = true
	s := lv.s
	s.done.Go(func() {
		doubts := 0
		for {
			st, err := s.b.state(s.fetch, s.q, lv.index)
			s.mu.Lock()
			switch {
			case err != nil:
			case st.Pending == 0 && doubts < maxDoubts && !lv.agrees(st.Delivered.Consumer):
				doubts++
			default:
				lv.waiting = st.Pending
			}
			if lv.waiting == 0 || s.fetch.Err() != nil || s.line.Len() == 0 {
				lv.looking = false
				s.line.Serve()
				s.mu.Unlock()
				return
			}
			s.mu.Unlock()
			if !s.b.pause(s.fetch, lookPause) {
				return
			}
		}
	})
}

// agrees reports whether an answer of the server fits the messages that have come; s.mu is held. An answer may overtake the
// last of them on its way here, or be older than one. What has not come may also have gone to another process, so that such
// answers are doubted for a moment only.
func (lv *level) agrees(delivered uint64) bool {
	asked := lv.line != nil && lv.line.outstanding > 0
	return delivered == lv.handed || delivered > lv.handed && !asked
}

// handle takes what comes through the line.
func (l *line) handle(m *nats.Msg) {
	l.seen.Store(time.Now().UnixNano())
	if m.Reply == "" {
		l.status(m)
		return
	}
	lv, s := l.lv, l.lv.s
	d, info, ok := newDelivery(lv, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.outstanding > 0 {
		l.outstanding--
	}
	if !ok { // not a delivery: nothing that JetStream sends
		return
	}
	lv.waiting, lv.handed = info.pending, info.handed
	if first(m.Header, headerMoved) != "" {
		s.b.outbox.ack(s.q, m.Reply, time.Time{})
		lv.poke()
		return
	}
	if s.fetch.Err() != nil { // closed: nobody will take it
		s.b.outbox.nak(s.q, m.Reply, time.Now().Add(s.lease))
		return
	}
	lv.unsettled++
	s.enter(d)
	if !time.Now().Before(s.deadline(d.hold)) { // it has been handed to somebody else
		s.leave(d)
		lv.unsettled--
		lv.poke()
		return
	}
	if notBefore := first(m.Header, headerNotBefore); notBefore != "" {
		if f := s.b.features.Load(); f != nil && !f.schedules {
			d.count = max(d.count-1, 1) // it was handed out once to be held back
		}
		at := millis(notBefore)
		if rest := s.b.rest(at); rest > 0 {
			s.early(d, m, at, rest, info.pending)
			return
		}
	}
	s.hand(d)
}

// hand holds a delivery for who waits; s.mu is held.
func (s *subscription) hand(d *delivery) {
	d.level.held.Push(d)
	s.line.Serve()
}

// status takes what the server says of the requests.
func (l *line) status(m *nats.Msg) {
	code, text := first(m.Header, "Status"), strings.ToLower(first(m.Header, "Description"))
	switch code {
	case "100": // a heartbeat
		return
	case "404", "408": // a request has ended
	case "503":
		l.lostConsumer()
		return
	case "409":
		switch {
		case strings.Contains(text, "consumer deleted"):
			l.lostConsumer()
			return
		case strings.Contains(text, "leadership change"), strings.Contains(text, "server shutdown"):
			l.fail(natsconn.ErrUnavailable)
			return
		}
	default:
		l.fail(fmt.Errorf("the server answers a request for messages with %s %.80q", code, text))
		return
	}
	n, err := strconv.Atoi(first(m.Header, "Nats-Pending-Messages"))
	if err != nil && code == "409" {
		l.fail(fmt.Errorf("the server refuses a request for messages: %.80q", text))
		return
	}
	s := l.lv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.outstanding -= n; l.outstanding < 0 || err != nil {
		l.outstanding = 0
	}
	l.lv.poke()
}

// lostConsumer ends the line of a consumer that is missing, maybe with its stream.
func (l *line) lostConsumer() {
	l.lv.s.b.outbox.doubt()
	l.fail(errConsumerGone)
}

func (l *line) fail(err error) {
	select {
	case l.broken <- err:
	default:
	}
}
