package sqlbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/tx"
)

// Broker is a [broker.Broker] over a SQL database. Create it with [New].
type Broker struct {
	cfg  Config
	conn *sqlconn.Conn
	text *texts

	fairText    *texts        // for fair queues
	fairTables  *sqlconn.Conn // makes the tables of fair queues, when the first one is declared
	boundTables *sqlconn.Conn // the same for their bounds

	out     *sqlconn.Batcher[row]   // sends published messages
	peeks   *sqlconn.Batcher[*peek] // reads for all waiting subscriptions
	nodes   nodes                   // nodes that noted starts through this Broker
	watch   watchers
	polling atomic.Bool // a question for peeks came from a poll
	begun   time.Time   // all subscriptions poll at the same times after it

	sameUntil atomic.Int64 // until then insert checks each id; nanoseconds since 1970

	queues sync.Map // name -> *queue, for queues that exist

	life  context.Context // of the goroutines; ends when Close has returned the messages
	end   context.CancelFunc
	calls context.Context // of the statements of goroutines; ends after life
	cut   context.CancelFunc

	mu        sync.Mutex
	closed    bool // Close has begun
	ended     bool // no further goroutine is started
	subs      map[*subscription]struct{}
	work      sync.WaitGroup
	closeDone chan struct{} // closed when Close is done
}

var (
	_ broker.Broker         = (*Broker)(nil)
	_ broker.Delayer        = (*Broker)(nil)
	_ broker.BatchPublisher = (*Broker)(nil)
	_ broker.Retrier        = (*Broker)(nil)
	_ broker.Declarer       = (*Broker)(nil)
	_ broker.Inspector      = (*Broker)(nil)
	_ broker.Auditor        = (*Broker)(nil)
	_ broker.DeadLetterer   = (*Broker)(nil)
	_ broker.Finder         = (*Broker)(nil)
	_ broker.QueueLister    = (*Broker)(nil)
	_ broker.Lister         = (*Broker)(nil)
	_ broker.KeyLister      = (*Broker)(nil)
	_ broker.DeadFinder     = (*Broker)(nil)
	_ broker.Describer      = (*Broker)(nil)
	_ broker.Watcher        = (*Broker)(nil)
	_ broker.Witness        = (*Broker)(nil)
	_ broker.TxPublisher    = (*Broker)(nil)
	_ tx.Checker            = (*Broker)(nil)
	_ broker.Resizer        = (*subscription)(nil)
	_ broker.Buffer         = (*subscription)(nil)
	_ broker.Bounder        = (*subscription)(nil)
	_ broker.SyncAcker      = (*delivery)(nil)
	_ broker.TxAcker        = (*delivery)(nil)
)

// New checks the configuration, sets its defaults and returns a Broker. It returns all problems as
// one joined error. It does not connect: the first call that needs the database does, and creates
// the tables.
func New(cfg Config) (*Broker, error) {
	err := cfg.check()
	conn, connErr := sqlconn.Of(cfg.DB, "broker")
	fair, _ := sqlconn.Of(cfg.DB, "fair") // their errors are the same
	bounds, _ := sqlconn.Of(cfg.DB, "fairbounds")
	if connErr != nil {
		connErr = fmt.Errorf("sqlbroker: %w", connErr)
	}
	if err := errors.Join(err, connErr); err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, conn: conn, text: newTexts(conn.Dialect(), false), fairTables: fair, boundTables: bounds, fairText: newTexts(conn.Dialect(), true),
		subs: make(map[*subscription]struct{}), closeDone: make(chan struct{}), begun: time.Now(),
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.calls, b.cut = context.WithCancel(context.Background())
	b.out = &sqlconn.Batcher[row]{
		Owner: b.owner(), Send: b.insert, Kind: b.inserting, Size: rowSize, Resend: b.isSame,
	}
	reader := b.owner()
	reader.Ready = b.readyToPeek
	b.peeks = &sqlconn.Batcher[*peek]{Owner: reader, Send: b.peekAll, Kind: sqlconn.Always[*peek](conn.View)}
	return b, nil
}

// owner returns the functions and contexts by which a batcher of b starts its goroutine, makes the
// tables, waits between attempts, and ends.
func (b *Broker) owner() sqlconn.BatchOwner {
	return sqlconn.BatchOwner{
		Start: b.start, Ready: b.ready, Pause: func(attempt int) bool { return b.pause(b.life, attempt) },
		Life: b.life, Calls: b.calls, Closed: errClosed,
	}
}

// postgres reports whether the database is PostgreSQL.
func (b *Broker) postgres() bool { return b.conn.Dialect() == sqlconn.Postgres }

// checkOpen returns ErrMalformed if the queue name is not valid, ErrClosed after Close, otherwise
// nil. It takes b.mu.
func (b *Broker) checkOpen(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("sql queue %.128q: %w", name, errClosed)
	}
	return nil
}

// ready makes or updates the tables and waits for the database. After a success further calls
// return nil at once. After an error the next call tries again.
func (b *Broker) ready(ctx context.Context) error { return b.conn.Ready(ctx) }

// readyFair makes or updates the tables of fair queues, as ready does for the others.
func (b *Broker) readyFair(ctx context.Context) error {
	if err := b.fairTables.Ready(ctx); err != nil {
		return err
	}
	return b.boundTables.Ready(ctx)
}

// update makes the tables and runs fn in a transaction that may write. It waits for the database.
// fn may run more than once. Returns the errors of ready, of the database and of fn; after an error
// nothing is changed, except that ErrIndeterminate leaves it unknown.
func (b *Broker) update(ctx context.Context, fn sqlconn.Func) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	return b.conn.Update(ctx, fn)
}

// exec makes the tables, runs one statement that writes, and returns the number of rows that it
// changed. Unless topic is "" it notifies the consumers of that topic if a row was changed. It
// waits for the database and returns its errors.
func (b *Broker) exec(ctx context.Context, topic, query string, args ...any) (n int64, err error) {
	if err := b.ready(ctx); err != nil {
		return 0, err
	}
	err = b.conn.Single(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		if n, err = tx.Exec(ctx, query, args...); n > 0 && topic != "" {
			tx.Notify(topic)
		}
		return err
	})
	return n, err
}

// view makes the tables and runs fn, which only reads. It waits for the database. fn may run more
// than once. Returns the errors of ready, of the database and of fn.
func (b *Broker) view(ctx context.Context, fn sqlconn.Func) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	return b.conn.View(ctx, fn)
}

// start runs fn in a goroutine for which Close waits, and returns true. If Close has begun to wait
// for the goroutines, it does not run fn and returns false. It takes b.mu.
func (b *Broker) start(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.work.Add(1)
	go func() {
		defer b.work.Done()
		fn()
	}()
	return true
}

// pause blocks for the backoff time of the given attempt, of which 0 is the first, and returns true
// then. It returns false if ctx or the Broker ended first.
func (b *Broker) pause(ctx context.Context, attempt int) bool {
	return wake.SleepOr(ctx, b.life.Done(), b.conn.Interval(attempt))
}

// answerTimeout limits the time that Close waits for outstanding answers.
const answerTimeout = time.Second

// Close implements [broker.Broker]. All messages that subscriptions hold go back to their queues,
// even those that Receive has returned: their Lost channels are closed. Calls of Publish in
// progress get about a second for their answer. Then they return ErrClosed or ErrIndeterminate.
//
// If the database cannot be reached until ctx ends, Close returns an error. The messages go back
// when the leases end then. A second call waits for the first one and returns nil, or ctx's error.
// It takes b.mu, but does not hold it while it waits.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	subs := slices.Collect(maps.Keys(b.subs))
	b.mu.Unlock()
	if !first {
		select {
		case <-b.closeDone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(b.closeDone)
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.closeWithBroker(ctx) })
	}
	wg.Wait()
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.end()
	answered := make(chan struct{})
	go func() {
		b.work.Wait()
		close(answered)
	}()
	t := time.NewTimer(answerTimeout)
	defer t.Stop()
	select {
	case <-answered: // the last answers have arrived
	case <-t.C:
	case <-ctx.Done():
	}
	b.cut() // ends the statements that still run
	err := errors.Join(b.conn.Close(ctx), b.fairTables.Close(ctx), b.boundTables.Close(ctx))
	select {
	case <-answered:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return fmt.Errorf("sql close: %w", err)
	}
	return nil
}
