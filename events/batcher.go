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

// BatcherConfig configures [NewBatcher]. The zero value is usable.
type BatcherConfig struct {
	// Capacity is how many events wait at most; beyond it the oldest are dropped. 0 or less: [DefaultCapacity], 8,192.
	Capacity int
	// MaxBytes is the size of a message of up to [MaxBatch] events, in bytes; a single larger event goes alone. 0 or less: [DefaultBatchBytes], 256 KiB.
	MaxBytes int
	// Linger is how long an event waits for others to share its message. 0 or less: [DefaultLinger], 50 ms.
	Linger time.Duration
	// SendTimeout bounds one send. 0 or less: [DefaultSendTimeout], 5 s.
	SendTimeout time.Duration
}

// Batcher is the sending half of a bus for its adapters: it collects events, and its one goroutine encodes and sends them
// in messages, beside the tasks. Whatever the connection does, [Batcher.Add] costs the same, and the memory is bounded.
// Make one with [NewBatcher]. All methods may be called from any goroutine.
type Batcher struct {
	send    func(ctx context.Context, message []byte, n int) error
	config  BatcherConfig
	most    int // events in a message
	dropped atomic.Uint64
	closed  atomic.Bool // written under mu

	wake    wake.Signal        // the first event is there, or a whole batch, or closing has begun
	ended   chan struct{}      // closed when the goroutine has returned
	hurry   context.Context    // ends when Close has no more time
	abandon context.CancelFunc // ends hurry

	mu      sync.Mutex
	waiting ring.Ring[Event]
	running bool
}

// NewBatcher makes a Batcher that sends with send. A message holds n events; it belongs to send, which has to return soon
// after its ctx ended. An error of send drops the message and counts its events: there is no second try, because events
// are sent at most once, and because the next ones wait. The goroutine starts with the first event and ends with Close.
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
	b.hurry, b.abandon = context.WithCancel(context.Background())
	return b
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Add takes e over and returns at once. It returns [ErrClosed] after Close and nil otherwise, also when it had to drop
// the oldest event. Texts beyond their limits are cut here and Fields is copied, so that nothing of the caller's is kept
// that is large or may change.
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

// bound cuts a text that is too long, and leaves all other checks of it to the goroutine.
func bound(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return cut(s, limit)
}

// Closed reports whether Close was called.
func (b *Batcher) Closed() bool { return b.closed.Load() }

// Dropped implements [DropCounter]: events that gave way to newer ones, that could not be encoded or whose message could
// not be sent.
func (b *Batcher) Dropped() uint64 { return b.dropped.Load() }

// Close sends what waits and ends the goroutine. When ctx ends or a send fails meanwhile, the rest is dropped and
// counted; the error is then ctx's, or nil. Further calls wait for the same end.
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
	defer b.abandon()
	select {
	case <-b.ended:
		return nil
	default:
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		b.abandon()
		<-b.ended // send returns soon after its ctx ended
		return ctx.Err()
	}
}

// run sends until the Batcher is closed and empty.
func (b *Batcher) run() {
	defer close(b.ended)
	linger := time.NewTimer(b.config.Linger)
	defer linger.Stop()
	batch := make([]Event, 0, b.most)
	since := time.Now() // when the oldest event that waits may have come
	for b.await(linger, since) {
		since = time.Now()
		batch = b.take(batch[:0])
		ok := b.sendAll(batch)
		clear(batch) // what was sent does not stay in memory until the next events come
		if !ok && b.closed.Load() {
			b.mu.Lock()
			b.dropped.Add(uint64(b.waiting.Len()))
			b.waiting.Clear()
			b.mu.Unlock()
			return
		}
	}
}

// await waits until a message is due: enough events for a whole one, or the first of them has waited long enough. It
// returns false when the Batcher is closed and empty. since is when the oldest event may have come that waits now.
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

func (b *Batcher) take(batch []Event) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch = batch[:min(b.waiting.Len(), b.most)]
	for i := range batch {
		b.waiting.Pop(&batch[i])
	}
	return batch
}

// sendAll sends a batch in as many messages as its size asks for. It returns false when one could not be sent.
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
		message, n = nil, 0 // the old one belongs to send
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
		message = append(message, '[') // or ',' beside others, below
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

// sendOne reports whether a message was sent; otherwise it counts its events as dropped.
func (b *Batcher) sendOne(message []byte, n int) bool {
	ctx, cancel := context.WithTimeout(b.hurry, b.config.SendTimeout)
	defer cancel()
	err := ctx.Err() // Close has no more time: not even a send that would not wait
	if err == nil {
		err = b.send(ctx, message, n)
	}
	if err != nil {
		b.dropped.Add(uint64(n))
	}
	return err == nil
}
