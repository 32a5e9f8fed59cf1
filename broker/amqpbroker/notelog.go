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
	// noteAge is for how long notes are kept.
	noteAge = 24 * time.Hour
	// notePause is between two attempts at a stream that is being made, which takes some 50 ms.
	notePause = 20 * time.Millisecond
	// noteAnswer is how long the server may take to confirm a note before it is sent again.
	noteAnswer = 10 * time.Second
	// placeWait is how long the server may take to find the place where reading was interrupted.
	placeWait = 5 * time.Second
	// syncPause is at least between two marks, which take room in the stream.
	syncPause = 50 * time.Millisecond
)

// noteLog is a stream queue to which all processes of a namespace write notes, and its reader in
// this process. Writing a note twice must be the same as writing it once.
type noteLog struct {
	b         *Broker
	queue     string
	size      int64 // bytes that the server keeps
	segment   int64 // the server forgets so many bytes at a time
	publisher *amqpconn.Publisher
	// apply is called by the reader for each note in the order of the stream, beginning with the
	// first that the server keeps.
	apply func(n *note, offset int64)
	// forget is called before the reader begins anew, at the beginning of another stream or behind
	// a gap.
	forget func()

	declaring chan struct{} // holds an element while somebody declares
	declared  atomic.Uint64 // the session on which the queue was declared
	prepared  atomic.Uint64 // the session of Broker.con on which it was found

	mu      sync.Mutex
	count   uint64
	reading bool
	marks   map[string]chan error // of notes that wait to be read; capacity 1
	next    *roundTrip            // that the callers of sync wait for
	syncing bool

	// For the reader alone.
	begun  bool
	last   int64  // offset of the last note
	lastID string // and its name
}

func (b *Broker) newNoteLog(queue string, size, segment int64) *noteLog {
	return &noteLog{
		b: b, queue: queue, size: size, segment: segment, publisher: amqpconn.NewPublisher(b.notes, amqpconn.PublisherConfig{}),
		declaring: make(chan struct{}, 1), marks: make(map[string]chan error),
	}
}

// args are the stream's arguments. The server forgets whole segments, and never the last one.
func (l *noteLog) args() amqp.Table {
	return amqp.Table{
		"x-queue-type":                    "stream",
		"x-max-age":                       strconv.Itoa(int(noteAge.Seconds())) + "s",
		"x-max-length-bytes":              l.size,
		"x-stream-max-segment-size-bytes": l.segment,
	}
}

// declare makes the stream, once for each connection for notes.
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

// prepare sees to it that the stream is there, on a connection that does not use it otherwise. The
// first note of a stream that was not there says since when it is.
func (l *noteLog) prepare(ctx context.Context, sess *amqpconn.Session) error {
	if l.prepared.Load() == sess.Generation() {
		return nil
	}
	err := sess.Do(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(l.queue, true, false, false, false, nil)
		return err
	})
	if amqpconn.IsNotFound(err) {
		err = l.append(ctx, l.name(), &note{Kind: noteMade, At: time.Now().UnixMilli()})
	}
	if err == nil {
		l.prepared.Store(sess.Generation())
	}
	return err
}

// name returns a fresh name for a note.
func (l *noteLog) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	return l.b.id + "." + strconv.FormatUint(l.count, 36)
}

// append writes a note and waits for its confirmation. It repeats what can be repeated until ctx
// ends.
func (l *noteLog) append(ctx context.Context, name string, n *note) error {
	p := &amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: name, Body: n.encode()}
	for {
		err := l.appendOnce(ctx, p)
		if err == nil {
			return nil
		}
		if errors.Is(err, amqpconn.ErrUnroutable) { // somebody has deleted it
			l.declared.Store(0)
		}
		again := amqpconn.IsInTheMaking(err) || amqpconn.IsNodeDown(err) || errors.Is(err, amqpconn.ErrIndeterminate)
		if !again || errors.Is(err, amqpconn.ErrAccess) || !wake.Sleep(ctx, notePause) {
			return err
		}
	}
}

func (l *noteLog) appendOnce(ctx context.Context, p *amqp.Publishing) error {
	sess, err := l.b.notes.Session(ctx)
	if err != nil {
		return err
	}
	if err := l.declare(ctx, sess); err != nil {
		return err
	}
	if sess.Blocked() { // it may last
		return l.publisher.Publish(ctx, "", l.queue, p)
	}
	within, cancel := context.WithTimeout(ctx, noteAnswer)
	defer cancel()
	err = l.publisher.Publish(within, "", l.queue, p)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", amqpconn.ErrIndeterminate, err) // to be repeated, whatever it was
	}
	return err
}

// write appends a note and waits until this process has read it: all that was stored before it has
// been applied then.
func (l *noteLog) write(ctx context.Context, n *note) error {
	name, read := l.name(), make(chan error, 1)
	l.mu.Lock()
	l.marks[name] = read
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.marks, name)
	}()
	if err := l.follow(); err != nil {
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

// sync waits until all that was stored before the call has been applied. Callers share the trips.
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
	if begin && !l.b.spawn(l.syncs) {
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

// syncs makes trips as long as somebody waits for one.
func (l *noteLog) syncs() {
	for {
		l.mu.Lock()
		r := l.next
		l.next = nil
		l.syncing = r != nil
		l.mu.Unlock()
		if r == nil {
			return
		}
		r.err = l.write(l.b.stop, &note{Kind: noteMark, At: time.Now().UnixMilli()})
		close(r.done)
		wake.Sleep(l.b.stop, syncPause) // then write fails at once
	}
}

// follow starts the reader, which lives until Close.
func (l *noteLog) follow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading {
		return nil
	}
	if !l.b.spawn(func() { l.b.notes.Supervise(l.b.stop, l.read, l.interrupted) }) {
		return amqpconn.ErrClosed
	}
	l.reading = true
	return nil
}

// interrupted tells those who wait of what waiting does not mend.
func (l *noteLog) interrupted(err error) {
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

// read reads over one channel until that ends.
func (l *noteLog) read(ctx context.Context, ch *amqpconn.Channel) error {
	if err := l.declare(ctx, ch.Session()); err != nil {
		return err
	}
	offset := any("first")
	if l.begun {
		offset = l.last // to see whether it is there
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
		if err := l.findPlace(ctx, f); err != nil {
			return err
		}
	}
	for {
		d, ok, err := f.Next(ctx)
		if err != nil {
			l.declared.Store(0) // it may have been deleted
			return err
		}
		if !ok {
			return nil
		}
		l.take(&d)
		if err := f.Taken(&d); err != nil {
			return err
		}
	}
}

// errOtherStream is the reason to read from the beginning.
var errOtherStream = errors.New("amqp: the stream of notes was made anew")

// findPlace takes the note out of f that was the last before the interruption. If nothing comes, or
// another note in its place, it is another stream.
func (l *noteLog) findPlace(ctx context.Context, f *amqpconn.Feed) error {
	within, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	d, ok, err := f.Next(within)
	switch {
	case err != nil:
		return err
	case !ok && ctx.Err() != nil:
		return nil // next will see it too
	case !ok, offsetOf(&d) < l.last, offsetOf(&d) == l.last && d.MessageId != l.lastID:
		l.begun = false
		l.forget()
		return errOtherStream
	case offsetOf(&d) > l.last: // what came between is not kept any more
		l.forget()
		l.take(&d)
	}
	return f.Taken(&d)
}

func offsetOf(d *amqp.Delivery) int64 {
	n, _ := integer(d.Headers["x-stream-offset"])
	return n
}

// take applies a note and tells the one who waits for it.
func (l *noteLog) take(d *amqp.Delivery) {
	var n note
	if err := json.Unmarshal(d.Body, &n); err == nil { // what is none says nothing
		l.apply(&n, offsetOf(d))
	}
	l.begun, l.last, l.lastID = true, offsetOf(d), d.MessageId
	l.mu.Lock()
	defer l.mu.Unlock()
	if read, ok := l.marks[d.MessageId]; ok {
		select {
		case read <- nil:
		default: // it was told of an error
		}
	}
}

// spawn starts a goroutine that Close waits for; it returns false after Close.
func (b *Broker) spawn(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop.Err() != nil {
		return false
	}
	b.tasks.Go(fn)
	return true
}

// millis is a time of a note. What is no time of this age of the world is zero.
func millis(ms int64) time.Time {
	if ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
