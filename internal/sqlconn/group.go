package sqlconn

import (
	"context"
	"errors"
	"sync"
)

// maxGroup is how many transactions share one commit at most: the first of them waits for the last.
const maxGroup = 256

var errClosed = errors.New("closed")

// group is the writer of a SQLite file. While there is something to write one goroutine commits, and what comes meanwhile
// waits for the next commit.
type group struct {
	lite *lite

	mu      sync.Mutex
	queue   []*turn
	polls   []chan int64 // that want to know the number of changes by others
	running bool
	closed  bool
	idle    chan struct{} // closed when nobody commits any more, after close

	conn *liteConn // of the goroutine that commits
}

// turn is one call of update: it takes part in a group when it is called.
type turn struct {
	tx   chan *Tx   // the call's function may run
	ran  chan error // what it returned
	done chan struct{}

	mu    sync.Mutex
	state state

	topics []string
	err    error
}

// state is how far a turn has come.
type state int

const (
	queued  state = iota
	running       // its function is called just now
	called        // its function has returned, and the commit is to come
	left          // the caller has gone
)

// errGone is what a call answers whose function did not return: it panicked, or ended its goroutine.
var errGone = errors.New("sqlconn: the function did not return")

func newGroup(l *lite) *group { return &group{lite: l, idle: make(chan struct{})} }

// update queues fn and runs it, in the caller's goroutine, when it is called.
func (g *group) update(ctx context.Context, fn Func) ([]string, error) {
	t := &turn{tx: make(chan *Tx), ran: make(chan error), done: make(chan struct{})}
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
			// It is being called just now. The function's first statement will find that ctx has ended.
			if err := t.run(ctx, <-t.tx, fn); err != nil {
				return nil, err
			}
		}
	}
}

// run runs fn and hands over what it returned, also when it does not return. Once it has failed nothing is left to wait for:
// it is surely undone.
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
	err = tx.verdict(fn(ctx, tx))
	t.topics = tx.topics
	return err
}

// leave takes the call out, unless its function is being called.
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
		return true, ended(ctx, nil)
	}
}

// call runs the turn's function, and reports whether its caller was still there.
func (t *turn) call(tx *Tx) (bool, error) {
	if !t.advance(running) {
		return false, nil
	}
	t.tx <- tx
	return true, <-t.ran
}

// advance notes how far the turn has come, unless the caller has left.
func (t *turn) advance(to state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == left {
		return false
	}
	t.state = to
	return true
}

// gone reports whether the caller has left.
func (t *turn) gone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == left
}

// end tells the caller.
func (t *turn) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	close(t.done)
}

// add queues a turn or a poll, and sees to it that somebody commits.
func (g *group) add(t *turn, poll chan int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return &failure{ErrClosed, errClosed}
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

// work commits until nothing waits.
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
			g.commit(batch)
		}
		g.answer(polls)
	}
}

// shut closes the connection; g.mu is held and nobody commits.
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

// close lets what is queued end. It is idempotent.
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

// version asks for a number that changes when another connection has changed the database.
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

// answer answers polls; 0: nobody knows.
func (g *group) answer(polls []chan int64) {
	if len(polls) == 0 {
		return
	}
	var v int64
	if g.ready() == nil {
		rows, err := g.conn.query(context.Background(), "PRAGMA data_version", nil)
		if err == nil {
			_ = Row{rows: rows}.Scan(&v) // 0 then
		}
	}
	for _, p := range polls {
		p <- v
	}
}

// ready opens the connection.
func (g *group) ready() error {
	if g.conn != nil && !g.conn.broken {
		return nil
	}
	if g.conn != nil && g.lite.plan.file != "" {
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
