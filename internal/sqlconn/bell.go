package sqlconn

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// channel is PostgreSQL's name for what all processes listen to. What is sent is "<sender> <topic>".
	channel = "swarmiji"
	// bellGap is at least between two notifications. One for each transaction would have them wait for each other.
	bellGap = 5 * time.Millisecond
	// maxTopics is how many topics one notification names; more are told as "anything".
	maxTopics = 100
	// maxTopic bounds a topic in bytes: the server takes 8,000 with everything.
	maxTopic = 4000
	// listenPing is how long a silent connection is believed.
	listenPing = 15 * time.Second
)

// bell tells other processes, and listens to them.
type bell struct {
	db     *postgres
	sender string

	mu      sync.Mutex
	pending map[string]struct{}
	ringing bool
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newBell(db *postgres) *bell {
	b := &bell{db: db, sender: rand.Text()[:12], pending: make(map[string]struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// tell implements database: what comes within a few milliseconds is told at once.
func (p *postgres) tell(topics []string) {
	b := p.bell
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range topics {
		if len(t) > maxTopic {
			t = ""
		}
		b.pending[t] = struct{}{}
	}
	if !b.ringing && b.ctx.Err() == nil {
		b.ringing = true
		b.running.Go(b.ring)
	}
}

// ring tells what is pending until nothing is.
func (b *bell) ring() {
	for {
		payloads := b.take()
		if payloads == nil {
			return
		}
		ctx, cancel := context.WithTimeout(b.ctx, b.db.plan.Timeout)
		conn, err := b.db.acquire(ctx)
		if err == nil {
			// What is lost is lost: listeners look by themselves as well.
			_, _ = conn.Exec(ctx, "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", channel, payloads)
			conn.Release()
		}
		cancel()
		wake.Sleep(b.ctx, bellGap)
	}
}

// take returns what to send; nil: nothing, and the ringing ends.
func (b *bell) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 || b.ctx.Err() != nil {
		b.ringing = false
		return nil
	}
	if len(b.pending) > maxTopics {
		clear(b.pending)
		return []string{b.sender + " "}
	}
	payloads := make([]string, 0, len(b.pending))
	for t := range b.pending {
		payloads = append(payloads, b.sender+" "+t)
	}
	clear(b.pending)
	return payloads
}

func (b *bell) close(ctx context.Context) error {
	b.cancel()
	ended := make(chan struct{})
	go func() {
		b.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch implements database: it listens on a connection of its own, and makes another when it is lost.
func (p *postgres) watch(ctx context.Context, w *wakes) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		listened, err := p.listen(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if listened {
			attempt = 0
		}
		if attempt == 0 { // once, however long it lasts
			p.plan.Logger.Warn("postgres: listening is interrupted; changes by other processes are seen late", "error", classify(err))
		}
		if !wake.Sleep(ctx, p.plan.Backoff.Interval(attempt)) {
			return
		}
	}
}

// listen makes a connection and hands on what it hears, until that ends. It reports whether it heard at all.
func (p *postgres) listen(ctx context.Context, w *wakes) (bool, error) {
	conn, err := pgx.ConnectConfig(ctx, p.plan.pool.ConnConfig.Copy())
	if err != nil {
		return false, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return false, err
	}
	w.everybody() // for what was told meanwhile
	for {
		if err := p.hear(ctx, conn, w); err != nil {
			return true, err
		}
	}
}

// hear waits for one notification, and after a long silence asks the server for a sign of life.
func (p *postgres) hear(ctx context.Context, conn *pgx.Conn, w *wakes) error {
	wait, cancel := context.WithTimeout(ctx, listenPing)
	n, err := conn.WaitForNotification(wait)
	silent := wait.Err() != nil && ctx.Err() == nil
	cancel()
	if err != nil {
		if !silent || conn.IsClosed() {
			return err
		}
		ping, cancel := context.WithTimeout(ctx, p.plan.pool.ConnConfig.ConnectTimeout)
		defer cancel()
		return conn.Ping(ping)
	}
	sender, topic, _ := strings.Cut(n.Payload, " ")
	switch {
	case sender == p.bell.sender: // they know
	case topic == "":
		w.everybody()
	default:
		w.foreign(topic)
	}
	return nil
}
