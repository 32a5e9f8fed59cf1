package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// channel begins the name of the PostgreSQL channel of all processes; the name of the schema
	// follows. A payload is "<sender> <topic>".
	channel = "swarmiji."
	// After a notification the notifier pauses for notifyPause times as long as it took, at most
	// maxNotifyGap. With a notification per transaction, transactions would wait for each other.
	notifyPause  = 4
	maxNotifyGap = 5 * time.Millisecond
	// maxTopics is the largest number of topics sent together. More topics are sent as one "" topic,
	// which means any change.
	maxTopics = 100
	// maxTopic is the largest size of a topic in bytes. The server accepts 8,000 bytes in a whole
	// payload.
	maxTopic = 4000
	// listenPing is the time without a notification after which the connection is checked.
	listenPing = 15 * time.Second
	// Without a connection that listens, the watchers are notified at intervals that grow from minPoll
	// to maxPoll while this process changes nothing.
	minPoll = 100 * time.Millisecond
	maxPoll = time.Second
)

// notifier sends topics to other processes. Safe for concurrent use.
type notifier struct {
	db     *postgres
	sender string
	poll   wake.Signal // notified by a change of this process

	mu      sync.Mutex
	pending map[string]struct{}
	sending bool
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// newNotifier returns a notifier for db with a random sender. It starts no goroutine.
func newNotifier(db *postgres) *notifier {
	n := &notifier{db: db, sender: rand.Text()[:12], poll: wake.New(), pending: make(map[string]struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Tell implements [sqlconn.Database]. It adds the topics to the pending ones and returns at once.
// One goroutine, which it starts if necessary, sends them, with pauses. A topic that is too long
// becomes "", which means any change. After Close nothing is sent. It takes the
// notifier's mutex.
func (p *postgres) Tell(topics []string) {
	n := p.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range topics {
		if len(t) > maxTopic {
			t = ""
		}
		n.pending[t] = struct{}{}
	}
	n.poll.Notify()
	if !n.sending && n.ctx.Err() == nil {
		n.sending = true
		n.running.Go(n.send)
	}
}

// send sends the pending topics until there are no more or close is called. Topics that cannot be
// sent are lost, without an error: listeners also check by themselves. It is the notifier's
// goroutine. It takes n.mu, but does not hold it while it waits.
func (n *notifier) send() {
	for {
		payloads := n.take()
		if payloads == nil {
			return
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(n.ctx, n.db.config.Timeout)
		conn, err := n.db.acquire(ctx, n.db.life)
		if err == nil {
			// An error is ignored: listeners also check by themselves.
			_, _ = conn.Exec(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", channel+n.db.config.Schema, payloads)
			n.db.release(conn)
		}
		cancel()
		wake.Sleep(n.ctx, min(notifyPause*time.Since(begun), maxNotifyGap))
	}
}

// take removes the pending topics and returns their payloads: the sender and the topic. If they are
// more than maxTopics, it returns one payload without a topic, which means any change. Without
// pending topics, or after close, it returns nil and marks the sending as ended. It takes n.mu.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) == 0 || n.ctx.Err() != nil {
		n.sending = false
		return nil
	}
	if len(n.pending) > maxTopics {
		clear(n.pending)
		return []string{n.sender + " "}
	}
	payloads := make([]string, 0, len(n.pending))
	for t := range n.pending {
		payloads = append(payloads, n.sender+" "+t)
	}
	clear(n.pending)
	return payloads
}

// close ends the sending and waits until its goroutine has ended. Pending topics are lost. Returns
// ctx's error if ctx ends first. It is idempotent.
func (n *notifier) close(ctx context.Context) error {
	n.cancel()
	ended := make(chan struct{})
	go func() {
		n.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Watch implements [sqlconn.Database]. It listens on a separate connection, and opens another when
// it is lost. Through PgBouncer it polls. It blocks until ctx ends.
func (p *postgres) Watch(ctx context.Context, w *sqlconn.Wakes) {
	if p.config.listen == nil {
		p.poll(ctx, w)
		return
	}
	for attempt := 0; ctx.Err() == nil; attempt++ {
		listened, err := p.listen(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if listened {
			attempt = 0
		}
		if attempt == 0 { // once per interruption, however long it lasts
			p.config.Logger.Warn("postgres: listening is interrupted; changes by other processes are seen late", "error", sqlconn.Classify(err))
		}
		if !wake.Sleep(ctx, p.config.Backoff.Interval(attempt)) {
			return
		}
	}
}

// poll notifies the watchers at intervals. It blocks until ctx ends.
func (p *postgres) poll(ctx context.Context, w *sqlconn.Wakes) {
	for d := minPoll; ; d = min(d*5/4, maxPoll) {
		begun := time.Now()
		if !p.notifier.poll.Wait(ctx, d) {
			return
		}
		if time.Since(begun) < d { // a change, perhaps the request for an answer by another process
			d = minPoll
			if !wake.Sleep(ctx, d) {
				return
			}
		}
		w.NotifyAll()
	}
}

// listen opens a connection and passes its notifications to w until the connection fails or ctx
// ends. It reports whether listening began, and returns the error that ended it, never nil. Once it
// listens it notifies all watchers, because of earlier changes. It closes the connection at the
// end.
func (p *postgres) listen(ctx context.Context, w *sqlconn.Wakes) (bool, error) {
	conn, hangUp, err := p.dial(ctx, p.config.listen)
	if err != nil {
		return false, err
	}
	defer hangUp()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel + p.config.Schema}.Sanitize()); err != nil {
		return false, err
	}
	w.NotifyAll() // for changes before listening began
	for {
		if err := p.hear(ctx, conn, w); err != nil {
			return true, err
		}
	}
}

// hear waits for one notification and passes it to w, unless this process has sent it. After
// listenPing without a notification it pings the server instead and returns nil if that answers.
// Returns an error if the connection is lost or ctx ends.
func (p *postgres) hear(ctx context.Context, conn *pgx.Conn, w *sqlconn.Wakes) error {
	wait, cancel := context.WithTimeout(ctx, listenPing)
	n, err := conn.WaitForNotification(wait)
	silent := wait.Err() != nil && ctx.Err() == nil
	cancel()
	if err != nil {
		if !silent || conn.IsClosed() {
			return err
		}
		ping, cancel := context.WithTimeout(ctx, cmp.Or(p.config.listen.ConnectTimeout, sqlconn.DefaultDialTimeout))
		defer cancel()
		return conn.Ping(ping)
	}
	sender, topic, _ := strings.Cut(n.Payload, " ")
	switch {
	case sender == p.notifier.sender: // its watchers are already notified
	case topic == "":
		w.NotifyAll()
	default:
		w.Foreign(topic)
	}
	return nil
}
