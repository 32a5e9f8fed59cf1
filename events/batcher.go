package events

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/ring"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// Defaults of [BatcherConfig].
const (
	DefaultCapacity    = 8192
	DefaultBatchBytes  = 256 << 10
	DefaultLinger      = 50 * time.Millisecond
	DefaultSendTimeout = 5 * time.Second
)

// BatcherConfig holds the settings of [NewBatcher]. The zero value is usable.
type BatcherConfig struct {
	// Capacity is the number of events that may wait. Beyond it the oldest are dropped. 0 or less:
	// [DefaultCapacity], 8,192.
	Capacity int
	// MaxBytes is the largest message of up to [MaxBatch] events, in bytes. A single larger event is
	// sent alone. 0 or less: [DefaultBatchBytes], 256 KiB.
	MaxBytes int
	// Linger is the longest time that an event waits for others to share its message. 0 or less:
	// [DefaultLinger], 50 ms.
	Linger time.Duration
	// SendTimeout limits one send. 0 or less: [DefaultSendTimeout], 5 s.
	SendTimeout time.Duration
}

// Batcher is the sending half of a bus, for adapters. It collects events, and its one goroutine
// encodes them and sends them in messages. [Batcher.Add] never waits for the connection, and memory
// is limited. Make one with [NewBatcher]. All methods are safe for concurrent use.
type Batcher struct {
	send    func(ctx context.Context, message []byte, n int) error
	config  BatcherConfig
	most    int // largest number of events in a message
	dropped atomic.Uint64
	closed  atomic.Bool // written under mu

	// notified when the first event or a whole batch waits, or Close was called
	wake        wake.Signal
	ended       chan struct{}      // closed when the goroutine has returned
	sendCtx     context.Context    // parent context of all sends; ends when Close stops waiting
	cancelSends context.CancelFunc // ends sendCtx

	mu      sync.Mutex
	waiting ring.Ring[Event]
	running bool
}

// NewBatcher makes a Batcher that sends with send. It starts its goroutine at the first event, and
// Close ends it.
//
// send receives a message, which it then owns, and its number n of events. It must return soon
// after its ctx ended. If it returns an error, the message is dropped and its events are counted. A
// message is never sent again, because events are delivered at most once and later ones wait.
func NewBatcher(send func(ctx context.Context, message []byte, n int) error, c BatcherConfig) *Batcher {
	c.Capacity = positive(c.Capacity, DefaultCapacity)
	c.MaxBytes = positive(c.MaxBytes, DefaultBatchBytes)
	c.Linger = positive(c.Linger, DefaultLinger)
	c.SendTimeout = positive(c.SendTimeout, DefaultSendTimeout)
	b := &Batcher{
		send:    send,
		config:  c,
		most:    min(MaxBatch, c.Capacity),
		wake:    wake.New(),
		ended:   make(chan struct{}),
		waiting: ring.New[Event](c.Capacity),
	}
	b.sendCtx, b.cancelSends = context.WithCancel(context.Background())
	return b
}

// positive returns v if it is above zero, otherwise the argument otherwise.
func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Add queues e and returns at once. If Capacity events wait already it drops the oldest one,
// counts it and still returns nil. Returns [ErrClosed] after Close. Add cuts texts that are too
// long and copies Fields and Worker, so that it keeps no memory of the caller. It takes b.mu. The
// first call starts the sending goroutine.
func (b *Batcher) Add(e Event) error {
	e.Args, e.Result = bound(e.Args, MaxPreview), bound(e.Result, MaxPreview)
	e.Exception, e.Stack = bound(e.Exception, MaxText), bound(e.Stack, MaxText)
	if e.Fields != nil {
		e.Fields = normalFields(e.Type, e.Fields)
	}
	if e.Worker != nil {
		e.Worker = normalWorker(e.Worker)
	}
	b.mu.Lock()
	if b.closed.Load() {
		b.mu.Unlock()
		return ErrClosed
	}
	dropped := b.waiting.Push(&e)
	n := b.waiting.Len()
	if !b.running {
		b.running = true
		go b.run()
	}
	b.mu.Unlock()
	if dropped {
		b.dropped.Add(1)
	}
	if n == 1 || n == b.most {
		b.wake.Notify()
	}
	return nil
}

// bound cuts s if it is longer than limit bytes. The sending goroutine does all other checks of the
// text.
func bound(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return cut(s, limit)
}

// Closed reports whether Close was called.
func (b *Batcher) Closed() bool { return b.closed.Load() }

// Dropped implements [DropCounter]. It counts events that were replaced by newer ones, could not be
// encoded, or were in a message that could not be sent.
func (b *Batcher) Dropped() uint64 { return b.dropped.Load() }

// Close sends the waiting events and ends the goroutine. If ctx ends or a send fails first, the
// remaining events are dropped and counted. Returns ctx's error if ctx ended first, otherwise nil.
// Further calls wait until the goroutine has ended. It takes b.mu, but not while it waits.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed.Load() {
		b.closed.Store(true)
		if !b.running {
			close(b.ended)
		}
	}
	b.mu.Unlock()
	b.wake.Notify()
	defer b.cancelSends()
	select {
	case <-b.ended:
		return nil
	default:
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		b.cancelSends()
		<-b.ended // send returns soon after its ctx ended
		return ctx.Err()
	}
}

// run sends messages until the Batcher is closed and empty, and closes b.ended then. A message
// that cannot be sent is dropped, and its events are counted. After Close it stops at the first
// failed send and drops and counts the rest. It takes b.mu.
func (b *Batcher) run() {
	defer close(b.ended)
	linger := time.NewTimer(b.config.Linger)
	defer linger.Stop()
	batch := make([]Event, 0, b.most)
	since := time.Now() // lower bound of the time at which the oldest waiting event was added
	for b.await(linger, since) {
		since = time.Now()
		batch = b.take(batch[:0])
		ok := b.sendAll(batch)
		clear(batch) // frees the memory of sent events before the next ones arrive
		if !ok && b.closed.Load() {
			b.mu.Lock()
			b.dropped.Add(uint64(b.waiting.Len()))
			b.waiting.Clear()
			b.mu.Unlock()
			return
		}
	}
}

// await waits until a message is due: MaxBatch events wait, the oldest has waited for Linger, or
// the Batcher is closed. It returns false if the Batcher is closed and empty. since is a lower
// bound of the time at which the oldest waiting event was added. It takes b.mu.
func (b *Batcher) await(linger *time.Timer, since time.Time) bool {
	var due <-chan time.Time
	for first := true; ; first = false {
		b.mu.Lock()
		n, closed := b.waiting.Len(), b.closed.Load()
		b.mu.Unlock()
		if closed || n >= b.most {
			return n > 0
		}
		if n > 0 && due == nil {
			wait := b.config.Linger
			if first {
				wait -= time.Since(since)
			}
			linger.Reset(wait)
			due = linger.C
		}
		select {
		case <-b.wake:
		case <-due:
			return true
		}
	}
}

// take moves up to a whole batch of waiting events into batch and returns it. It takes b.mu.
func (b *Batcher) take(batch []Event) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch = batch[:min(b.waiting.Len(), b.most)]
	for i := range batch {
		b.waiting.Pop(&batch[i])
	}
	return batch
}

// sendAll sends a batch in one or more messages of at most MaxBytes, and waits for each. It skips
// and counts events that cannot be encoded. If a message could not be sent it counts its events,
// still sends the others, and returns false.
func (b *Batcher) sendAll(batch []Event) (ok bool) {
	ok = true
	var message []byte
	n := 0
	flush := func() {
		if n == 0 {
			return
		}
		if !b.sendOne(append(message, ']'), n) {
			ok = false
		}
		message, n = nil, 0 // send owns the old message
	}
	for i := range batch {
		e := &batch[i]
		if e.check() != nil {
			b.dropped.Add(1)
			continue
		}
		if message == nil {
			message = make([]byte, 0, 256*(len(batch)-i))
		}
		start := len(message)
		message = append(message, '[') // replaced by ',' below if the message has other events
		message = appendEvent(message, e)
		if n > 0 && len(message) >= b.config.MaxBytes {
			single := append([]byte(nil), message[start:]...)
			message = message[:start]
			flush()
			message = single
		} else if n > 0 {
			message[start] = ','
		}
		n++
	}
	flush()
	return ok
}

// sendOne sends a message, waits for that up to Config.SendTimeout, and reports whether it
// succeeded. After a failure it counts the n events as dropped. It sends nothing if Close has
// stopped waiting.
func (b *Batcher) sendOne(message []byte, n int) bool {
	ctx, cancel := context.WithTimeout(b.sendCtx, b.config.SendTimeout)
	defer cancel()
	err := ctx.Err() // after Close stopped waiting even a fast send is not tried
	if err == nil {
		err = b.send(ctx, message, n)
	}
	if err != nil {
		b.dropped.Add(uint64(n))
	}
	return err == nil
}
