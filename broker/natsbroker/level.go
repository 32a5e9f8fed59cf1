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
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// unlimitedWindow is the number of messages that a subscription without a limit requests in
	// advance.
	unlimitedWindow = 1000
	// pullExpires limits the time that the server keeps a request for messages. pullHeartbeat is the
	// interval at which it reports that it still has it. After maxSilence without a report the request
	// counts as lost.
	pullExpires   = 60 * time.Second
	pullHeartbeat = 5 * time.Second
	maxSilence    = 12 * time.Second
	// withdrawWait limits the time that a request which the server is answering may take before it is
	// withdrawn.
	withdrawWait = 50 * time.Millisecond
)

var (
	errConsumerGone = errors.New("the consumer is missing")
	errSilent       = errors.New("the server has lost the request for messages: no heartbeat")
)

// level pulls messages from the server's consumer of one level, or of one lane of a level of a fair
// queue. The subscription's mutex guards its fields.
type level struct {
	s     *subscription
	index int // in queue.work
	rank  int // of the priority level; 0 is the most urgent
	// other priority levels wait for its messages: it is more urgent, or the subscription has a floor
	awaited bool

	want      int // its part of the prefetch
	held      *lanes.Lane[delivery]
	unsettled int    // held, received, or being moved
	pending   uint64 // messages that the server had after the last one, or at the last question
	// number of messages that the consumer had delivered to any process, at the last one received here
	delivered uint64
	asking    bool // the goroutine of askPending runs
	inbox     *pullInbox
	created   time.Time          // creation time of the consumer; only run uses it
	wake      wake.Signal        // messages may be requested
	resets    chan chan struct{} // asks run to withdraw its requests; it closes the value then
}

// pullInbox is the inbox through which messages arrive. After each loss a new one is used, because
// the server may keep requests of the old one.
type pullInbox struct {
	lv          *level
	sess        *natsconn.Session
	sub         *nats.Subscription
	outstanding int // messages requested and not arrived
	broken      chan error
	closed      chan struct{}
	heardAt     atomic.Int64 // when the server was heard last, in Unix nanoseconds
}

// newLevel returns level index of a subscription with the prefetch want, which passes its
// deliveries to held. It does not start it.
func newLevel(s *subscription, index, want int, held *lanes.Lane[delivery]) *level {
	return &level{s: s, index: index, want: want, held: held, wake: wake.New(), resets: make(chan chan struct{})}
}

// requestable returns how many messages may be requested now, 0 without an inbox or with a prefetch
// of 0. Not every settlement may cause a request: for a small number it returns 0, unless there is
// a prefetch and no request is in progress. Call it with s.mu held.
func (lv *level) requestable() int {
	l := lv.inbox
	if l == nil || lv.want == 0 {
		return 0
	}
	if lv.want == unlimited {
		if n := unlimitedWindow - l.outstanding - lv.held.Len(); n >= unlimitedWindow/2 {
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

// hasRoom reports whether the prefetch allows a further message. Call it with s.mu held.
func (lv *level) hasRoom() bool { return lv.want == unlimited || lv.unsettled < lv.want }

// wakeIfRoom wakes the goroutine of the level if messages may be requested. Call it with s.mu held.
func (lv *level) wakeIfRoom() {
	if lv.requestable() > 0 {
		lv.wake.Notify()
	}
}

// run pulls messages through one inbox after the other until the subscription is closed. After a
// lost inbox it pauses, longer after each failure. If access is refused, or the queue does not
// exist or is malformed, Receive returns the error until a pull works.
func (lv *level) run() {
	s := lv.s
	var pauses task.Backoff
	known := true // Subscribe has just checked the consumer
	for attempt := 0; s.fetch.Err() == nil; attempt++ {
		begin := time.Now()
		err := lv.pull(known)
		known = false
		switch {
		case err == nil: // the inbox was closed deliberately
			attempt = -1
			continue
		case s.fetch.Err() != nil:
			return
		case errors.Is(err, natsconn.ErrAccess), errors.Is(err, broker.ErrNoQueue), errors.Is(err, broker.ErrMalformed):
			s.setFault(err)
		case errors.Is(err, natsconn.ErrTooMany): // the consumer was deleted, and others use its place
			s.b.logTooMany(s.fetch, s.q, err)
		case time.Since(begin) > time.Second:
			attempt = 0
		}
		if !s.b.pause(s.fetch, pauses.Interval(attempt)) {
			return
		}
	}
}

// ensureConsumer creates the consumer of the level again if it was deleted, logs that, and reads
// the queue again. It waits for the server and returns its error. It takes s.mu.
func (lv *level) ensureConsumer() error {
	s := lv.s
	info, err := s.b.ensureConsumer(s.fetch, s.q, lv.index, s.lease)
	if err != nil {
		return err
	}
	s.mu.Lock()
	lv.delivered = info.Delivered.Consumer
	s.mu.Unlock()
	if !info.Created.Equal(lv.created) {
		s.b.logConsumerGone(s.fetch, s.q, lv.index)
		lv.created = info.Created
		s.b.queues.Delete(s.q.name) // it may have been deleted with its stream
		if _, err := s.b.queue(s.fetch, s.q.name); err != nil {
			return err
		}
	}
	return nil
}

// pull opens an inbox, to which the server sends messages, and requests messages whenever there is
// room. With a prefetch of 0 it waits first. If known is true the consumer exists for certain, and
// pull does not create it. It returns the error when the inbox or the connection is lost, nil when
// the inbox was closed deliberately. It takes s.mu, but not while it waits.
func (lv *level) pull(known bool) error {
	s := lv.s
	for lv.isPaused() {
		known = false // another process may change the consumer meanwhile
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
	if err := s.b.outbox.useConnection(s.fetch, sess); err != nil {
		return err
	}
	if !known {
		if err := lv.ensureConsumer(); err != nil {
			return err
		}
	}
	l := &pullInbox{lv: lv, sess: sess, broken: make(chan error, 1), closed: make(chan struct{})}
	l.heardAt.Store(time.Now().UnixNano())
	inbox := nats.NewInbox()
	if l.sub, err = sess.NATS.Subscribe(inbox, l.handleMessage); err != nil {
		return natsconn.Classify(err)
	}
	if err := l.sub.SetPendingLimits(-1, -1); err != nil { // the requests limit them
		return natsconn.Classify(err)
	}
	s.mu.Lock()
	lv.inbox = l
	s.mu.Unlock()
	defer l.close()
	ask := "$JS.API.CONSUMER.MSG.NEXT." + s.b.names.stream + "." + s.q.consumers[lv.index]
	t := time.NewTicker(pullHeartbeat)
	defer t.Stop()
	for first := true; ; first = false {
		s.mu.Lock()
		n := lv.requestable()
		l.outstanding += n
		if first && s.line.Fault() != nil {
			s.line.Fail(nil)
		}
		busy := l.outstanding > 0
		s.mu.Unlock()
		if n > 0 {
			l.heardAt.Store(time.Now().UnixNano())
			if err := sess.NATS.PublishRequest(ask, inbox, pullRequest(n)); err != nil {
				return natsconn.Classify(err)
			}
		}
		select {
		case <-lv.wake:
		case done := <-lv.resets:
			l.withdraw(s.fetch)
			close(done)
			return nil
		case err := <-l.broken:
			return err
		case <-sess.Done():
			return natsconn.ErrUnavailable
		case <-s.fetch.Done():
			return nil
		case now := <-t.C:
			if busy && now.UnixNano()-l.heardAt.Load() > int64(maxSilence) {
				return errSilent
			}
		}
	}
}

// isPaused reports whether the prefetch is 0. It takes s.mu.
func (lv *level) isPaused() bool {
	lv.s.mu.Lock()
	defer lv.s.mu.Unlock()
	return lv.want == 0
}

// pullRequest returns the body of a request for up to n messages.
func pullRequest(n int) []byte {
	return fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, pullExpires.Nanoseconds(), pullHeartbeat.Nanoseconds())
}

// withdraw withdraws the outstanding requests. It waits for the server. When it returns, all
// messages that the server has sent have arrived. It first gives a server that is sending up to
// withdrawWait to finish. Messages that it sends while it reads the withdrawal would be missed,
// and delivered again only after the lease. It takes s.mu.
func (l *pullInbox) withdraw(ctx context.Context) {
	s := l.lv.s
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for begin := time.Now(); ; <-t.C {
		s.mu.Lock()
		left := l.outstanding
		s.mu.Unlock()
		quiet := time.Now().UnixNano()-l.heardAt.Load() > int64(5*time.Millisecond)
		if left == 0 || quiet || time.Since(begin) > withdrawWait || l.ended() {
			break
		}
	}
	if l.ended() || l.sub.Drain() != nil {
		return
	}
	// an error means that the connection is lost, and then no more messages arrive
	_ = s.b.conn.Flush(ctx)
}

// ended reports whether the connection of the inbox has ended.
func (l *pullInbox) ended() bool {
	select {
	case <-l.sess.Done():
		return true
	default:
		return false
	}
}

// close ends the inbox and removes it from its level, after the messages that arrived through it
// were handled. It waits at most a second for them. It takes the subscription's mutex.
func (l *pullInbox) close() {
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
	l.lv.inbox = nil
	l.outstanding = 0
	close(l.closed)
}

// setPrefetch limits the unsettled messages of the level to n: 0 stops the deliveries, unlimited
// removes the limit. It blocks until requests beyond n are withdrawn or the subscription has ended.
// Unsettled messages above n stay. Returns ErrUnavailable if ctx ends first; n is valid then too.
// It takes s.mu. With 0 the inbox is closed: the consumer looks unused, and other processes may
// shorten its lease. The next inbox restores the lease.
func (lv *level) setPrefetch(ctx context.Context, n int) error {
	s := lv.s
	s.mu.Lock()
	lv.want = n
	s.mu.Unlock()
	lv.wake.Notify()
	for {
		s.mu.Lock()
		l := lv.inbox
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
			case <-l.closed:
			case <-ctx.Done():
				return unavailable(ctx)
			}
		case <-l.closed:
		case <-s.life.Done():
			return nil
		case <-ctx.Done():
			return unavailable(ctx)
		}
	}
}

// handleMessage handles a status message with handleStatus, and a delivery that arrives through l:
//   - It holds a delivery and passes it to Receive, or to handleEarly if its time has not come.
//   - It acknowledges a notice of a moved message.
//   - It returns a message that arrived after Close to the queue.
//   - It ignores a message whose lease has ended on the way.
//
// It updates l.outstanding and lv.unsettled. It takes the subscription's mutex.
func (l *pullInbox) handleMessage(m *nats.Msg) {
	l.heardAt.Store(time.Now().UnixNano())
	if m.Reply == "" {
		l.handleStatus(m)
		return
	}
	lv, s := l.lv, l.lv.s
	d, info, ok := newDelivery(lv, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.outstanding > 0 {
		l.outstanding--
	}
	if !ok { // not a delivery of JetStream
		return
	}
	lv.pending, lv.delivered = info.pending, info.delivered
	if headerValue(m.Header, headerMoved) != "" {
		s.b.outbox.ack(s.q, m.Reply, time.Time{})
		lv.wakeIfRoom()
		return
	}
	if s.fetch.Err() != nil { // after Close no caller receives it
		s.b.outbox.nak(s.q, m.Reply, time.Now().Add(s.lease))
		return
	}
	lv.unsettled++
	s.addHeld(d)
	if !time.Now().Before(s.deadline(d.group)) { // the server has delivered it again
		s.removeHeld(d)
		lv.unsettled--
		lv.wakeIfRoom()
		return
	}
	if notBefore := headerValue(m.Header, headerNotBefore); notBefore != "" {
		if f := s.b.features.Load(); f != nil && !f.schedules {
			d.count = max(d.count-1, 1) // it was delivered once before, to be held back
		}
		at := parseMillis(notBefore)
		if rest := s.b.untilDue(at); rest > 0 {
			s.handleEarly(d, m, at, rest, info.pending)
			return
		}
	}
	s.addReady(d)
}

// addReady adds a delivery to the ready ones and passes it to a waiting call of Receive. Call it
// with s.mu held.
func (s *subscription) addReady(d *delivery) {
	d.level.held.Push(d, &d.msg)
	s.line.Serve()
}

// handleStatus handles a status message about the requests; it ignores a heartbeat. The end of a
// request reduces l.outstanding and may wake the level. A missing consumer, a new leader, a refused
// request or an unknown status ends the inbox. It takes s.mu.
func (l *pullInbox) handleStatus(m *nats.Msg) {
	code, text := headerValue(m.Header, "Status"), strings.ToLower(headerValue(m.Header, "Description"))
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
	n, err := strconv.Atoi(headerValue(m.Header, "Nats-Pending-Messages"))
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
	l.lv.wakeIfRoom()
}

// lostConsumer ends the inbox because its consumer is missing, maybe with its stream. Settlements
// wait until the queues were checked.
func (l *pullInbox) lostConsumer() {
	l.lv.s.b.outbox.distrust()
	l.fail(errConsumerGone)
}

// fail ends the inbox with err. It does not block. Only the first error counts.
func (l *pullInbox) fail(err error) {
	select {
	case l.broken <- err:
	default:
	}
}
