package amqpdead

import (
	"context"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// letters fetched at once in the first window; each further one may be four times as large
	firstWindow   = 4
	maxWindow     = 500     // limit of a window, in letters
	windowBytes   = 8 << 20 // approximate limit of a window, in bytes of bodies
	returnTimeout = 2 * time.Second

	groupSize      = 32 // letters that one command returns
	groupsUnderWay = 16 // commands between two waits
	scanIdle       = 200 * time.Millisecond
)

// Scans runs scans of dead letters. The zero value is ready for use. Safe for concurrent use.
type Scans struct {
	turns sync.Map // queue -> a channel that is full while its dead letters are scanned
}

// Scan calls fn with each dead letter, on the calling goroutine, and removes those for which fn
// returns DeadRemove. AMQP cannot read a queue without consuming it: the letters are fetched and
// the kept ones are returned at the end. Until then no other consumer sees them. A process runs one
// scan of a queue at a time, and a second scan waits. Memory holds the bodies of one window; of the
// kept letters it holds only numbers.
//
// open calls its argument with a temporary channel and the name of the queue with the dead letters,
// and returns its error. It does not call it if no such queue exists. decode reads a letter.
//
// Returns the error of open. If ctx ends while the letters are read, another goroutine returns the
// kept letters. A lost connection ends the scan with an error, and the server puts the kept letters
// back.
//
// A quorum queue puts returned letters before letters that were never fetched, but after letters
// that were returned earlier. So a scan that stops still fetches the letters that an earlier scan
// had fetched. Only a scan that fails or crashes may change the order.
func (t *Scans) Scan(ctx context.Context, queue string, open func(ctx context.Context, fn func(ch *amqp.Channel, name string) error) error, decode func(*amqp.Delivery) broker.Dead, fn func(*broker.Dead) broker.DeadAction) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also if fn panics
	s := scan{decode: decode, letters: make(chan *broker.Dead), actions: make(chan broker.DeadAction, 1)}
	ended := make(chan error, 1)
	go func() {
		ended <- open(ctx, func(ch *amqp.Channel, name string) error {
			free, err := t.lock(ctx, queue)
			if err != nil {
				return err
			}
			defer free()
			s.ch, s.name = ch, name
			return s.run(ctx)
		})
	}()
	for {
		select {
		case d := <-s.letters:
			s.actions <- fn(d)
		case err := <-ended:
			return err
		}
	}
}

// lock blocks until no other scan of the queue runs in this process. The caller must call free
// at the end of its scan. Returns ctx's cause if ctx ends first.
func (t *Scans) lock(ctx context.Context, queue string) (free func(), err error) {
	v, _ := t.turns.LoadOrStore(queue, make(chan struct{}, 1))
	turn := v.(chan struct{}) //nolint:forcetypeassert // nothing else is in it
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// scan is a running scan on a separate channel.
type scan struct {
	ch       *amqp.Channel
	name     string
	decode   func(*amqp.Delivery) broker.Dead
	letters  chan *broker.Dead      // to the caller of Scan
	actions  chan broker.DeadAction // the results of fn
	expected int                    // number of letters at the beginning
	fetched  int                    // number of letters fetched so far
	stopped  bool                   // no further letter is shown
	groups   []group
	fresh    bool // the next kept delivery starts a group
}

// group is a number of kept letters of one window.
type group struct {
	last  uint64 // delivery tag of the last letter
	count int
}

// run fetches the letters that existed at the beginning, window by window, and passes them to the
// caller of Scan. Then it returns the kept letters to the queue, even after an error. It waits
// for the server. Returns the first error.
func (s *scan) run(ctx context.Context) error {
	q, err := amqpconn.Numbers(s.ch, s.name)
	if err != nil {
		return err
	}
	s.expected = q.Messages
	for size, over := firstWindow, s.expected == 0; !over && err == nil; {
		var bytes, count int
		bytes, count, over, err = s.window(ctx, size)
		if count > 0 {
			size = max(1, min(4*size, maxWindow, windowBytes/max(1, bytes/count)))
		}
	}
	if backErr := s.returnKept(ctx); err == nil {
		err = backErr
	}
	return err
}

// returnKept returns the kept letters to the queue in their order. It blocks until they can be
// fetched again, so that the next scan finds them. Returns errors of the server; letters that are
// not returned then go back when the channel is closed.
//
// A quorum queue preserves the order only for few commands at once, of few letters each. So
// returnKept waits after every groupsUnderWay commands. If the letters do not reappear, because
// another process takes them, it stops waiting.
func (s *scan) returnKept(ctx context.Context) error {
	q, err := amqpconn.Numbers(s.ch, s.name)
	if err != nil {
		return err
	}
	back, patient := q.Messages, true
	for i, g := range s.groups {
		if err := s.ch.Nack(g.last, true, true); err != nil {
			return err
		}
		back += g.count
		if patient && (i%groupsUnderWay == groupsUnderWay-1 || i == len(s.groups)-1) {
			if patient, err = s.awaitReady(ctx, back); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitReady blocks until the queue holds at least count letters, and returns true then. It
// returns false if returnTimeout passes first. After an error of the server it returns true and
// the error. It does not stop when ctx ends.
func (s *scan) awaitReady(ctx context.Context, count int) (bool, error) {
	for pause, until := time.Millisecond, time.Now().Add(returnTimeout); time.Now().Before(until); pause = min(2*pause, 20*time.Millisecond) {
		q, err := s.ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
		if err != nil || q.Messages >= count {
			return true, err
		}
		wake.Sleep(context.WithoutCancel(ctx), pause)
	}
	return false, nil
}

// window fetches and shows letters until size of them are kept. It returns the size of the bodies
// in bytes, the number of letters shown, and whether the scan is over. It removes letters as fn
// decides and keeps the tags of the others. If no letter arrives for a while it asks whether the
// queue is empty.
//
// Before it returns it cancels its consumer; letters that arrive until then are kept. Returns ctx's
// cause if ctx ends, and errors of the server, with the letters so far.
func (s *scan) window(ctx context.Context, size int) (bytes, count int, over bool, err error) {
	if err := s.ch.Qos(size, 0, false); err != nil {
		return 0, 0, false, err
	}
	// a quorum queue does not accept the tag of another consumer that still holds letters
	tag := "scan " + strconv.Itoa(s.fetched)
	in, err := s.ch.Consume(s.name, tag, false, false, false, false, nil)
	if err != nil {
		return 0, 0, false, err
	}
	s.fresh = true
	idle := time.NewTicker(scanIdle)
	defer idle.Stop()
	kept := 0
	for quiet := false; kept < size && !over && err == nil; {
		select {
		case d, open := <-in:
			if !open {
				err = amqp.ErrClosed
				break
			}
			quiet = false
			bytes, count = bytes+len(d.Body), count+1
			s.fetched++
			var removed bool
			removed, err = s.showLetter(ctx, &d)
			if !removed {
				kept++
				s.keep(d.DeliveryTag)
			}
			over = s.fetched >= s.expected || s.stopped && !d.Redelivered
		case <-idle.C: // another process has some of the letters, or they have expired
			q, askErr := amqpconn.Numbers(s.ch, s.name)
			over, quiet, err = quiet && q.Messages == 0, q.Messages == 0, askErr
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if cancelErr := s.ch.Cancel(tag, false); err == nil {
		err = cancelErr
	}
	for d := range in { // fetched meanwhile; in is closed with the consumer
		s.fetched++
		s.keep(d.DeliveryTag)
	}
	return bytes, count, over, err
}

// keep records the tag of a delivery that is returned at the end of the scan. It adds the delivery
// to the last group of its window, or starts a group if that is full.
func (s *scan) keep(tag uint64) {
	if s.fresh || s.groups[len(s.groups)-1].count == groupSize {
		s.groups, s.fresh = append(s.groups, group{}), false
	}
	g := &s.groups[len(s.groups)-1]
	g.last = tag
	g.count++
}

// showLetter passes a letter to the caller of Scan and waits for the decision. If the decision
// is DeadRemove, it acknowledges the letter and returns true, even if the acknowledgement fails. It
// returns false for a letter that is kept. The decision DeadStop keeps the letter and sets
// s.stopped; later calls show nothing and return false. Returns an error if ctx ends or the
// acknowledgement fails.
func (s *scan) showLetter(ctx context.Context, d *amqp.Delivery) (removed bool, err error) {
	if s.stopped {
		return false, nil
	}
	dead := s.decode(d)
	select {
	case s.letters <- &dead:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case action := <-s.actions:
		s.stopped = action == broker.DeadStop
		if action == broker.DeadRemove {
			return true, s.ch.Ack(d.DeliveryTag, false)
		}
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
