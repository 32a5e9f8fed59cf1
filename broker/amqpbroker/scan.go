package amqpbroker

import (
	"context"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	firstWindow = 4       // letters fetched at a time, at first; then up to four times as many
	maxWindow   = 500     // and at most
	windowBytes = 8 << 20 // about how many bytes of bodies a window may hold
	backTimeout = 2 * time.Second

	groupSize      = 32 // letters that one command gives back
	groupsUnderWay = 16 // commands
	scanIdle       = 200 * time.Millisecond
)

// ScanDead implements [broker.DeadLetterer]. AMQP has no look at a queue: letters are fetched and
// given back in the end. Until then nobody else sees them, so that a process scans a queue once at
// a time; a second scan waits. Bodies are held a window at a time, of what is kept only the number.
//
// A quorum queue puts what is given back in front of what was never fetched, but behind what was
// given back before. So a scan that stops goes on fetching what an earlier one had fetched. Only
// one that fails, or dies, may leave another order.
func (b *Broker) ScanDead(ctx context.Context, queue string, fn func(*broker.Dead) broker.DeadAction) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also if fn panics
	s := deadScan{queue: queue, letters: make(chan *broker.Dead), actions: make(chan broker.DeadAction, 1)}
	ended := make(chan error, 1)
	go func() {
		ended <- b.withDead(ctx, queue, false, func(ch *amqp.Channel, name string) error {
			free, err := b.scanning(ctx, queue)
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
			return wrap(err, "scan the dead letters of", queue)
		}
	}
}

// scanning waits until no other scan of the queue is under way in this process.
func (b *Broker) scanning(ctx context.Context, queue string) (free func(), err error) {
	v, _ := b.scans.LoadOrStore(queue, make(chan struct{}, 1))
	turn := v.(chan struct{}) //nolint:forcetypeassert // nothing else is in it
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// deadScan is a scan on its way, on a channel of its own.
type deadScan struct {
	ch          *amqp.Channel
	name, queue string
	letters     chan *broker.Dead      // to the caller of ScanDead
	actions     chan broker.DeadAction // its answers
	expected    int                    // how many letters there were at the beginning
	fetched     int                    // how many of them were fetched
	stopped     bool                   // nothing more is shown
	groups      []deadGroup
	fresh       bool // the next delivery that is kept begins a group
}

// deadGroup is letters of one window that are kept.
type deadGroup struct {
	last  uint64 // the delivery tag of the last one
	count int
}

// run fetches the letters and gives back in the end what is kept.
func (s *deadScan) run(ctx context.Context) error {
	q, err := s.ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
	if err != nil {
		return err
	}
	s.expected = q.Messages
	for size, over := firstWindow, s.expected == 0; !over && err == nil; {
		var bytes, count int
		bytes, count, over, err = s.window(ctx, size)
		if bytes > 0 {
			size = max(1, min(4*size, maxWindow, windowBytes/max(1, bytes/count)))
		}
	}
	if backErr := s.giveBack(ctx); err == nil {
		err = backErr
	}
	return err
}

// giveBack gives back what is kept, in its order, and waits until it can be fetched again, so that
// the next scan finds it. A quorum queue keeps the order only of few commands under way, of few
// letters each. Where what is given back does not show, since others take it, there is no more
// waiting.
func (s *deadScan) giveBack(ctx context.Context) error {
	q, err := s.ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
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
			if patient, err = s.await(ctx, back); err != nil {
				return err
			}
		}
	}
	return nil
}

// await waits until so many letters are there, and reports whether they are.
func (s *deadScan) await(ctx context.Context, count int) (bool, error) {
	for pause, until := time.Millisecond, time.Now().Add(backTimeout); time.Now().Before(until); pause = min(2*pause, 20*time.Millisecond) {
		q, err := s.ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
		if err != nil || q.Messages >= count {
			return true, err
		}
		wake.Sleep(context.WithoutCancel(ctx), pause)
	}
	return false, nil
}

// window fetches letters until it holds size of them that are kept. It reports how large the bodies
// were and whether the scan is over.
func (s *deadScan) window(ctx context.Context, size int) (bytes, count int, over bool, err error) {
	if err := s.ch.Qos(size, 0, false); err != nil {
		return 0, 0, false, err
	}
	tag := "scan " + strconv.Itoa(s.fetched) // a quorum queue takes one tag for one consumer as long as it holds something
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
			removed, err = s.show(ctx, &d)
			if !removed {
				kept++
				s.keep(d.DeliveryTag)
			}
			over = s.fetched >= s.expected || s.stopped && !d.Redelivered
		case <-idle.C: // others have some of the letters, or they have expired
			q, askErr := s.ch.QueueDeclarePassive(s.name, true, false, false, false, nil)
			over, quiet, err = quiet && q.Messages == 0, q.Messages == 0, askErr
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if cancelErr := s.ch.Cancel(tag, false); err == nil {
		err = cancelErr
	}
	for d := range in { // fetched meanwhile; it ends with the consumer
		s.fetched++
		s.keep(d.DeliveryTag)
	}
	return bytes, count, over, err
}

// keep notes a delivery that is given back in the end, in a group with others of its window.
func (s *deadScan) keep(tag uint64) {
	if s.fresh || s.groups[len(s.groups)-1].count == groupSize {
		s.groups, s.fresh = append(s.groups, deadGroup{}), false
	}
	g := &s.groups[len(s.groups)-1]
	g.last = tag
	g.count++
}

// show has the caller decide what becomes of a letter and removes it if so.
func (s *deadScan) show(ctx context.Context, d *amqp.Delivery) (removed bool, err error) {
	if s.stopped {
		return false, nil
	}
	dead := deadLetter(s.queue, d)
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
