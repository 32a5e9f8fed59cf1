package sqlconn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxGroup is the largest number of transactions in one commit. The first of them waits for the
// last. After batchTime, no other function begins before the commit.
const (
	maxGroup  = 256
	batchTime = 50 * time.Millisecond
)

// group is the writer of a SQLite file. One goroutine commits while there are waiting calls. New
// calls wait for the next commit. Safe for concurrent use.
type group struct {
	lite *lite

	mu      sync.Mutex
	queue   []*turn
	polls   []chan int64 // channels that wait for the number of changes by others
	running bool
	closed  bool
	idle    chan struct{} // closed when the goroutine has ended, after close

	conn *liteConn // used by the committing goroutine only
}

// turn is one call of update. Its function runs as part of a batch.
type turn struct {
	relaxed bool       // the commit need not wait for the disk
	tx      chan *Tx   // allows the call to run its function
	ran     chan error // result of the function
	done    chan struct{}

	mu    sync.Mutex
	state state

	topics []string
	err    error
}

// state is the progress of a turn.
type state int

const (
	queued  state = iota
	running       // its function is running
	called        // its function has returned; the commit follows
	left          // the caller has left
)

// errGone is the result of a function that did not return: it panicked, or ended its goroutine.
var errGone = errors.New("sqlconn: the function did not return")

// newGroup returns the writer of l. It opens no connection and starts no goroutine.
func newGroup(l *lite) *group { return &group{lite: l, idle: make(chan struct{})} }

// update queues fn for the next batch, runs it in the caller's goroutine and waits for the commit.
// It returns the topics that fn passed to Notify. fn may run more than once. relaxed allows a
// commit that does not wait for the disk. It takes g.mu and the mutex of its turn, but holds
// neither while it waits.
//
// Returns the error of fn or of the commit, and ErrClosed after close. If ctx ends before fn runs,
// fn does not run, and it returns ErrUnavailable. If ctx ends during the commit, it returns
// ErrIndeterminate.
func (g *group) update(ctx context.Context, relaxed bool, fn Func) ([]string, error) {
	t := &turn{relaxed: relaxed, tx: make(chan *Tx), ran: make(chan error), done: make(chan struct{})}
	if err := g.add(t, nil); err != nil {
		return nil, err
	}
	for {
		select {
		case tx := <-t.tx:
			if err := t.run(ctx, tx, fn); err != nil {
				return nil, err
			}
		case <-t.done:
			return t.topics, t.err
		case <-ctx.Done():
			if left, err := t.leave(ctx); left {
				return nil, err
			}
			// fn is about to run. Its first statement will find that ctx has ended.
			if err := t.run(ctx, <-t.tx, fn); err != nil {
				return nil, err
			}
		}
	}
}

// run runs fn with tx and sends its result to the committing goroutine, even if fn panics. It
// returns the error of fn or of a statement, and sets t.topics. After an error the turn is left:
// its changes are rolled back, and the caller need not wait. It takes t.mu, but does not hold it
// during fn.
func (t *turn) run(ctx context.Context, tx *Tx, fn Func) (err error) {
	err = errGone
	defer func() {
		to := called
		if err != nil {
			to = left
		}
		t.advance(to)
		t.ran <- err
	}()
	err = tx.Verdict(fn(ctx, tx))
	t.topics = tx.topics
	return err
}

// leave takes a call whose ctx has ended out of the group, unless its function is running. It
// reports whether the call has left. Then the error is its result: that of the commit if it has
// ended, ErrIndeterminate if it may follow, else ErrUnavailable. It takes t.mu and does not block.
func (t *turn) leave(ctx context.Context) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.done:
		return true, t.err
	default:
	}
	switch t.state {
	case running:
		return false, nil
	case called:
		t.state = left
		return true, &failure{ErrIndeterminate, context.Cause(ctx)}
	default:
		t.state = left
		return true, Ended(ctx, nil)
	}
}

// call lets the caller run the turn's function with tx and waits until it has ended. The first
// result is true then, and the second is the function's error. It returns false and nil if the
// caller has left. It takes t.mu, but does not hold it while it waits.
func (t *turn) call(tx *Tx) (bool, error) {
	if !t.advance(running) {
		return false, nil
	}
	t.tx <- tx
	return true, <-t.ran
}

// advance sets the state of the turn. It returns false if the caller has left. It takes t.mu.
func (t *turn) advance(to state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == left {
		return false
	}
	t.state = to
	return true
}

// hasLeft reports whether the caller has left. It takes t.mu.
func (t *turn) hasLeft() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == left
}

// end stores the result and wakes the caller. It must be called once. It takes t.mu.
func (t *turn) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.done)
}

// add queues t, or poll if t is nil, and starts the committing goroutine if it is not running.
// Returns ErrClosed after close. It takes g.mu.
func (g *group) add(t *turn, poll chan int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Closed()
	}
	if t != nil {
		g.queue = append(g.queue, t)
	} else {
		g.polls = append(g.polls, poll)
	}
	if !g.running {
		g.running = true
		go g.work()
	}
	return nil
}

// work commits batches of at most maxGroup turns and answers polls until nothing waits. Turns that
// commit returns are queued again, in front. At the end it records that it does not run; after
// close it also closes the connection. It is the committing goroutine. It takes g.mu, but does not
// hold it while it commits.
func (g *group) work() {
	for {
		g.mu.Lock()
		n := min(len(g.queue), maxGroup)
		batch := g.queue[:n:n]
		if g.queue = g.queue[n:]; len(g.queue) == 0 {
			g.queue = nil
		}
		polls := g.polls
		g.polls = nil
		if n == 0 && len(polls) == 0 {
			g.running = false
			if g.closed {
				g.shut()
			}
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if n > 0 {
			if rest := g.commit(batch); len(rest) > 0 {
				g.mu.Lock()
				g.queue = append(rest, g.queue...)
				g.mu.Unlock()
			}
		}
		g.answer(polls)
	}
}

// shut closes the connection and g.idle. Call it with g.mu held, when the committing goroutine has
// ended. It is idempotent.
func (g *group) shut() {
	select {
	case <-g.idle:
		return
	default:
	}
	if g.conn != nil {
		g.conn.close()
		g.conn = nil
	}
	close(g.idle)
}

// close refuses new calls and waits until the queued calls have ended and the connection is closed.
// It is idempotent. Returns the error of ctx if ctx ends earlier. It takes g.mu, but does not hold
// it while it waits.
func (g *group) close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	if !g.running {
		g.shut()
	}
	g.mu.Unlock()
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// version returns a number that changes when another connection has changed the database. 0 means
// that the number is not known. It waits for the committing goroutine, which reads it. Returns the
// error of ctx if ctx ends first, ErrClosed after close. It takes g.mu, but does not hold it while
// it waits.
func (g *group) version(ctx context.Context) (int64, error) {
	answer := make(chan int64, 1)
	if err := g.add(nil, answer); err != nil {
		return 0, err
	}
	select {
	case v := <-answer:
		return v, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// answer reads the number for version and sends it to each of the polls, which never blocks: each
// has room for it. It sends 0 if the connection cannot be opened or the query fails. Without polls
// it does nothing. Call it on the committing goroutine.
func (g *group) answer(polls []chan int64) {
	if len(polls) == 0 {
		return
	}
	var v int64
	if g.ready() == nil {
		rows, err := g.conn.Query(context.Background(), "PRAGMA data_version", nil)
		if err == nil {
			_ = Row{rows: rows}.Scan(&v) // v stays 0 after an error
		}
	}
	for _, p := range polls {
		p <- v
	}
}

// ready opens the connection if it is not open, and replaces a broken one. A broken connection to a
// database in memory is kept and used again. Returns the error of a failed open. Call it on the
// committing goroutine.
func (g *group) ready() error {
	if g.conn != nil && !g.conn.broken {
		return nil
	}
	if g.conn != nil && g.lite.file != "" {
		g.lite.forgetLog()
		g.conn.close()
		g.conn = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), DefaultDialTimeout)
	defer cancel()
	if g.conn == nil {
		conn, err := g.lite.connect(ctx, false)
		if err != nil {
			return err
		}
		g.conn = conn
	}
	g.conn.broken = false
	return nil
}
