package amqpbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// noteAge is the retention of notes.
	noteAge = 24 * time.Hour
	// notePause is the pause before another attempt to use a stream that is being created, which takes
	// about 50 ms.
	notePause = 20 * time.Millisecond
	// noteAnswer limits the time that the server may take to confirm a note. After it the note is sent
	// again.
	noteAnswer = 10 * time.Second
	// resumeWait limits the time that the server may take to deliver the last known note after an
	// interruption.
	resumeWait = 5 * time.Second
	// syncPause is the shortest pause between two marks, which take space in the stream.
	syncPause = 50 * time.Millisecond
)

// noteLog writes notes to a stream queue that all processes of a namespace share, and reads the
// stream in this process. A note that is written twice must have the same effect as one written
// once.
type noteLog struct {
	b         *Broker
	queue     string
	size      int64 // limit of the stream on the server, in bytes
	segment   int64 // the server drops this many bytes at a time
	publisher *amqpconn.Publisher
	// apply is called by the reader for each note in the order of the stream, beginning with the
	// oldest on the server.
	apply func(n *note, offset int64)
	// reset is called before the reader starts at the beginning of another stream, or continues after
	// a gap.
	reset func()

	declaring chan struct{} // holds an element while a goroutine declares the stream
	declared  atomic.Uint64 // number of the connection notes on which the stream was declared
	ensured   atomic.Uint64 // number of the connection con on which the stream was found

	mu      sync.Mutex
	count   uint64 // number of ids made so far
	reading bool
	// ids of written notes that were not read yet; each channel has capacity 1
	marks   map[string]chan error
	next    *roundTrip // the result for which callers of sync wait
	syncing bool

	// The next fields belong to the reader's goroutine.
	begun  bool
	last   int64  // offset of the last note
	lastID string // id of the last note
}

// newNoteLog returns a noteLog for the stream queue. The server keeps at most size bytes, in
// segments of segment bytes. It sends nothing to the server.
func (b *Broker) newNoteLog(queue string, size, segment int64) *noteLog {
	return &noteLog{
		b: b, queue: queue, size: size, segment: segment, publisher: amqpconn.NewPublisher(b.notes, amqpconn.PublisherConfig{}),
		declaring: make(chan struct{}, 1), marks: make(map[string]chan error),
	}
}

// args returns the arguments of the stream. The server drops whole segments, and never the last
// one.
func (l *noteLog) args() amqp.Table {
	return amqp.Table{
		"x-queue-type":                    "stream",
		"x-max-age":                       strconv.Itoa(int(noteAge.Seconds())) + "s",
		"x-max-length-bytes":              l.size,
		"x-stream-max-segment-size-bytes": l.segment,
	}
}

// declare creates the stream if it does not exist, once per connection of notes, and waits for the
// server. Concurrent callers wait until one of them has done it. Returns ErrUnavailable if ctx ends
// first, and the errors of declareOne; then the next call tries again.
func (l *noteLog) declare(ctx context.Context, sess *amqpconn.Session) error {
	if l.declared.Load() == sess.Generation() {
		return nil
	}
	select {
	case l.declaring <- struct{}{}:
		defer func() { <-l.declaring }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
	}
	if l.declared.Load() == sess.Generation() {
		return nil
	}
	if err := l.b.declareOne(ctx, sess, l.queue, l.args()); err != nil {
		return err
	}
	l.declared.Store(sess.Generation())
	return nil
}

// ensureStream makes sure that the stream exists, once per connection. sess is the connection that
// consumes; the stream is written over another one. If it had to be created, ensureStream writes a
// first note, whose time says since when the stream exists. It waits for the server. After an error
// the next call tries again.
func (l *noteLog) ensureStream(ctx context.Context, sess *amqpconn.Session) error {
	if l.ensured.Load() == sess.Generation() {
		return nil
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(l.queue, true, false, false, false, nil)
		return err
	})
	if amqpconn.IsNotFound(err) {
		err = l.append(ctx, l.newNoteID(), &note{Kind: noteCreated, At: time.Now().UnixMilli()})
	}
	if err == nil {
		l.ensured.Store(sess.Generation())
	}
	return err
}

// newNoteID returns a new id for a note, unique among all processes. It takes l.mu.
func (l *noteLog) newNoteID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return l.b.id + "." + strconv.FormatUint(l.count, 36)
}

// append writes n to the stream under the id name and waits for the confirmation. The note may be
// stored even if append returns an error, and more than once.
//
// An attempt creates a missing stream. append repeats the attempt until ctx ends in these cases:
// the stream was missing or is being created, the server refused the note, its node is down, or no
// answer arrived. If ctx ends, it returns the error of the last attempt. It returns other errors,
// also ErrAccess, at once.
func (l *noteLog) append(ctx context.Context, name string, n *note) error {
	p := &amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: name, Body: n.encode()}
	for {
		err := l.appendOnce(ctx, p)
		if err == nil {
			return nil
		}
		if errors.Is(err, amqpconn.ErrUnroutable) { // another process has deleted the stream
			l.declared.Store(0)
		}
		again := amqpconn.IsBeingDeclared(err) || amqpconn.IsNodeDown(err) || errors.Is(err, amqpconn.ErrIndeterminate)
		if !again || errors.Is(err, amqpconn.ErrAccess) || !wake.Sleep(ctx, notePause) {
			return err
		}
	}
}

// appendOnce publishes p to the stream once and waits for the confirmation. It declares the stream
// if that was not done on this connection. If no answer arrives within noteAnswer it returns
// ErrIndeterminate. While the server blocks publishers with an alarm, it waits until ctx ends
// instead.
func (l *noteLog) appendOnce(ctx context.Context, p *amqp.Publishing) error {
	sess, err := l.b.notes.Session(ctx)
	if err != nil {
		return err
	}
	if err := l.declare(ctx, sess); err != nil {
		return err
	}
	if sess.Blocked() { // the alarm may last longer than noteAnswer
		return l.publisher.Publish(ctx, "", l.queue, p)
	}
	within, cancel := context.WithTimeout(ctx, noteAnswer)
	defer cancel()
	err = l.publisher.Publish(within, "", l.queue, p)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		// the caller repeats after this error, whatever the cause
		return fmt.Errorf("%w: %w", amqpconn.ErrIndeterminate, err)
	}
	return err
}

// writeAndRead appends n and blocks until this process has read it back. All notes that were
// stored before n have been applied then. It starts the reader if it does not run. It takes l.mu,
// but not while it waits.
//
//   - ctx ends or the Broker is closed after the append: ErrIndeterminate.
//   - The server refuses access to the reader: that error.
//   - startReader or append fails: that error.
func (l *noteLog) writeAndRead(ctx context.Context, n *note) error {
	name, read := l.newNoteID(), make(chan error, 1)
	l.mu.Lock()
	l.marks[name] = read
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.marks, name)
	}()
	if err := l.startReader(); err != nil {
		return err
	}
	if err := l.append(ctx, name, n); err != nil {
		return err
	}
	select {
	case err := <-read:
		return err
	case <-l.b.stop.Done():
		return fmt.Errorf("%w: %w", amqpconn.ErrIndeterminate, amqpconn.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("%w: reading the notes: %w", amqpconn.ErrIndeterminate, ctx.Err())
	}
}

// sync blocks until all notes that were stored before the call have been applied. Concurrent
// callers share one mark, a note that is written and read back by the goroutine of runSyncs. It
// takes l.mu, but not while it waits. Returns ErrClosed after Close, ErrUnavailable if ctx ends,
// and the errors of writeAndRead.
func (l *noteLog) sync(ctx context.Context) error {
	l.mu.Lock()
	r := l.next
	if r == nil {
		r = &roundTrip{done: make(chan struct{})}
		l.next = r
	}
	begin := !l.syncing
	l.syncing = true
	l.mu.Unlock()
	if begin && !l.b.spawn(l.runSyncs) {
		return broker.ErrClosed
	}
	select {
	case <-r.done:
		return r.err
	case <-l.b.stop.Done():
		return broker.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: reading the notes: %w", broker.ErrUnavailable, ctx.Err())
	}
}

// runSyncs writes one mark after the other and blocks until it is read, while callers of sync
// wait. Each mark gives its result to all callers that came before it was written. It pauses for
// syncPause between two marks. It returns when no caller waits. It takes l.mu, but not while it
// waits.
func (l *noteLog) runSyncs() {
	for {
		l.mu.Lock()
		r := l.next
		l.next = nil
		l.syncing = r != nil
		l.mu.Unlock()
		if r == nil {
			return
		}
		r.err = l.writeAndRead(l.b.stop, &note{Kind: noteMark, At: time.Now().UnixMilli()})
		close(r.done)
		wake.Sleep(l.b.stop, syncPause) // after Close the next write fails at once
	}
}

// startReader starts the goroutine that reads the stream, if it does not run. The goroutine runs
// until Close. Returns amqpconn.ErrClosed after Close. It takes l.mu and b.mu.
func (l *noteLog) startReader() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading {
		return nil
	}
	if !l.b.spawn(func() { l.b.notes.Supervise(l.b.stop, l.read, l.readFailed) }) {
		return amqpconn.ErrClosed
	}
	l.reading = true
	return nil
}

// readFailed is called with the error that ended a channel of the reader. If access was refused,
// it returns the error to all callers that wait for a note to be read. Any other error is only
// logged at debug level, and the reader continues on another channel. It takes l.mu.
func (l *noteLog) readFailed(err error) {
	if !errors.Is(err, amqpconn.ErrAccess) {
		l.b.cfg.Logger.LogAttrs(l.b.stop, slog.LevelDebug, "amqp: reading notes is interrupted",
			slog.String("amqp_queue", l.queue), slog.String("error", err.Error()))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, read := range l.marks {
		select {
		case read <- err:
		default:
		}
	}
}

// read declares the stream and applies its notes, until ch or ctx ends. On a later channel it
// continues after the last note that was applied. Returns nil if ctx has ended. After another end
// it returns the error, and Supervise calls it again with a new channel. The stream may have been
// deleted then: read clears l.declared, so that the stream is declared again.
func (l *noteLog) read(ctx context.Context, ch *amqpconn.Channel) error {
	if err := l.declare(ctx, ch.Session()); err != nil {
		return err
	}
	offset := any("first")
	if l.begun {
		offset = l.last // resume checks that this note still exists
	}
	deliveries, err := ch.Session().ConsumeStream(ch.Channel, l.queue, offset, amqpconn.FeedPrefetch)
	if err != nil {
		if amqpconn.IsNotFound(err) {
			l.declared.Store(0)
		}
		return err
	}
	f := amqpconn.NewFeed(ch, deliveries)
	if l.begun {
		if err := l.resume(ctx, f); err != nil {
			return err
		}
	}
	for {
		d, ok, err := f.Next(ctx)
		if err != nil {
			l.declared.Store(0) // the stream may have been deleted
			return err
		}
		if !ok {
			return nil
		}
		l.applyDelivery(&d)
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// errOtherStream makes the reader start again at the beginning.
var errOtherStream = errors.New("amqp: the stream of notes was created again")

// resume reads the first note from f and compares it with the last note that was applied before
// the interruption. It waits up to resumeWait.
//
//   - It is that note: resume returns nil.
//   - It is a later note, because the server has dropped notes: resume resets the state, applies
//     the later note and returns nil.
//   - It is another note, or none arrives: the stream was created again. resume resets the state
//     and returns errOtherStream, so that the next channel reads from the beginning.
//   - ctx has ended: nil.
//
// Returns the error of f if its channel ends.
func (l *noteLog) resume(ctx context.Context, f *amqpconn.Feed) error {
	within, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	d, ok, err := f.Next(within)
	switch {
	case err != nil:
		return err
	case !ok && ctx.Err() != nil:
		return nil // the next call of Next reports it too
	case !ok, offsetOf(&d) < l.last, offsetOf(&d) == l.last && d.MessageId != l.lastID:
		l.begun = false
		l.reset()
		return errOtherStream
	case offsetOf(&d) > l.last: // the notes between were dropped
		l.reset()
		l.applyDelivery(&d)
	}
	return f.Taken(&d)
}

// offsetOf returns the offset of a message in its stream, 0 if the message has no valid header for
// it.
func offsetOf(d *amqp.Delivery) int64 {
	n, _ := amqpconn.Integer(d.Headers["x-stream-offset"])
	return n
}

// applyDelivery passes the note in d to l.apply, records its offset and id, and wakes the writer
// that waits for it. It ignores a body that is not a note. It takes l.mu, but not during l.apply.
func (l *noteLog) applyDelivery(d *amqp.Delivery) {
	var n note
	if err := json.Unmarshal(d.Body, &n); err == nil { // other bodies are ignored
		l.apply(&n, offsetOf(d))
	}
	l.begun, l.last, l.lastID = true, offsetOf(d), d.MessageId
	l.mu.Lock()
	defer l.mu.Unlock()
	if read, ok := l.marks[d.MessageId]; ok {
		select {
		case read <- nil:
		default: // the writer has received an error already
		}
	}
}

// spawn runs fn in a goroutine for which Close waits, and returns true. Once Close has ended
// b.stop, it does not run fn and returns false. It takes b.mu.
func (b *Broker) spawn(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop.Err() != nil {
		return false
	}
	b.tasks.Go(fn)
	return true
}

// noteTime returns a note's time in milliseconds as a time.Time. It returns the zero time for a
// value that is not positive or too large.
func noteTime(ms int64) time.Time {
	if ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
