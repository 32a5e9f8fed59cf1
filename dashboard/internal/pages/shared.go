package pages

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

const (
	keep      = time.Second / 2  // how long after its question an answer is given to further callers
	keepCheck = 10 * time.Second // of a check, which asks all servers and queues
	stale     = 2 * keepCheck    // until then an older check is shown while a new one runs
	readTime  = 30 * time.Second // limits a shared read
)

// The answer to a slow question is kept longer, so that pages ask for it in a tenth of the time:
// keepTimes as long as it took, but at most keepMost. Up to twice that age it is shown while a new
// one is read. That is less than lag, so the last load of a page shows the change.
const (
	keepTimes = 10
	keepMost  = 5 * time.Second / 2
)

// maxAnswers limits the answers that are kept of one kind of question.
const maxAnswers = 100

// shared is an API whose slow reads are shared by callers that ask for the same at the same time.
// So many open pages cost as much as one. Callers must not change the answers.
type shared struct {
	inspect.API
	logger *slog.Logger

	queues   memo[inspect.QueuePage]
	workers  memo[inspect.WorkerPage]
	running  memo[inspect.RunningPage]
	reports  memo[inspect.Report]
	failures memo[failureGroups]
	rates    memo[inspect.RatePage]
	audit    memo[inspect.AuditPage]

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // of closed and reads.Add
	closed bool
	reads  sync.WaitGroup
}

// failureGroups is the answer of failures.
type failureGroups struct {
	groups []failure
	more   bool
}

func newShared(api inspect.API, logger *slog.Logger) *shared {
	s := &shared{API: api, logger: logger}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.reports.stale = stale
	return s
}

// close ends the reads and waits for them. Idempotent. Returns ctx's error if one has not ended in
// time.
func (s *shared) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	return wait(ctx, &s.reads)
}

// wait waits for g, or returns ctx's error.
func wait(ctx context.Context, g *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() { g.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget drops all answers, since something was changed.
func (s *shared) forget() {
	s.queues.forget()
	s.workers.forget()
	s.running.forget()
	s.reports.forget()
	s.failures.forget()
	s.rates.forget()
	s.audit.forget()
}

func (s *shared) ListQueues(ctx context.Context, q inspect.QueueQuery) (inspect.QueuePage, error) {
	return get(ctx, s, &s.queues, keep, q, s.API.ListQueues)
}

func (s *shared) ListWorkers(ctx context.Context, q inspect.WorkerQuery) (inspect.WorkerPage, error) {
	return get(ctx, s, &s.workers, keep, q, s.API.ListWorkers)
}

func (s *shared) ListRunning(ctx context.Context, q inspect.RunningQuery) (inspect.RunningPage, error) {
	return get(ctx, s, &s.running, keep, q, s.API.ListRunning)
}

func (s *shared) ListRates(ctx context.Context, q inspect.RateQuery) (inspect.RatePage, error) {
	return get(ctx, s, &s.rates, keep, q, s.API.ListRates)
}

func (s *shared) ListAudit(ctx context.Context, q inspect.AuditQuery) (inspect.AuditPage, error) {
	return get(ctx, s, &s.audit, keep, q, s.API.ListAudit)
}

func (s *shared) Check(ctx context.Context, q inspect.CheckQuery) (inspect.Report, error) {
	return get(ctx, s, &s.reports, keepCheck, q, s.API.Check)
}

// groups returns the groups of failures.
func (s *shared) groups(ctx context.Context) ([]failure, bool, error) {
	g, err := get(ctx, s, &s.failures, keep, 0, func(ctx context.Context, _ int) (failureGroups, error) {
		groups, more, err := failures(ctx, s)
		return failureGroups{groups, more}, err
	})
	return g.groups, g.more, err
}

// memo keeps answers for a while, by question.
type memo[V any] struct {
	// An answer of this age is returned while a new one is read. 0: only a slow answer is.
	stale time.Duration

	mu      sync.Mutex
	answers map[string]*answer[V]
}

// answer is an answer, after done is closed.
type answer[V any] struct {
	done  chan struct{}
	v     V
	err   error
	at    time.Time // when it was asked
	took  time.Duration
	older *older[V] // given to callers until done is closed; nil: no older answer
}

// older is the answer to an earlier question.
type older[V any] struct {
	v     V
	until time.Time // it is too old then
}

func (m *memo[V]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = nil
}

// get returns the answer to q. One read runs for all callers with this question; it does not end
// with a caller's ctx. If m has too many other answers, the caller reads for itself.
func get[Q, V any](ctx context.Context, s *shared, m *memo[V], keep time.Duration, q Q, read func(context.Context, Q) (V, error)) (V, error) {
	key, err := json.Marshal(q)
	if err != nil {
		var none V
		return none, err
	}
	a := m.answer(string(key), keep, func(a *answer[V]) {
		s.start(func() {
			reading, cancel := context.WithTimeout(s.ctx, readTime)
			defer cancel()
			a.v, a.err = read(reading, q)
		}, a.end)
	})
	if a == nil {
		return read(ctx, q)
	}
	select {
	case <-a.done:
		return a.v, a.err
	default:
	}
	if a.older != nil && time.Now().Before(a.older.until) {
		return a.older.v, nil
	}
	select {
	case <-a.done:
		return a.v, a.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// end publishes the answer.
func (a *answer[V]) end(err error) {
	if err != nil {
		a.err = err
	}
	a.took = time.Since(a.at)
	close(a.done)
}

// slow returns how long an answer that is read is kept because it took long.
func (a *answer[V]) slow() time.Duration { return min(keepTimes*a.took, keepMost) }

// limit returns the age up to which a is shown while a new answer is read.
func (m *memo[V]) limit(a *answer[V]) time.Duration { return max(m.stale, 2*a.slow()) }

// start runs read and then end, in a goroutine for which close waits.
func (s *shared) start(read func(), end func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		end(&inspect.Error{Code: inspect.CodeUnavailable, Text: "the dashboard is closed"})
		return
	}
	s.reads.Go(func() {
		var err error
		defer func() {
			if p := recover(); p != nil { // a server of HTTP recovers from one in a handler
				s.logger.Error("dashboard: panic in a read", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
				err = &inspect.Error{Code: inspect.CodeInternal, Text: "the dashboard cannot read this; its log has the reason"}
			}
			end(err)
		}()
		read()
	})
}

// answer returns the answer to a question, which may still be read. start begins to read. Returns
// nil if m has maxAnswers others.
func (m *memo[V]) answer(key string, keep time.Duration, start func(*answer[V])) *answer[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.answers[key]
	if a != nil {
		age, over := a.age()
		switch {
		case !over || age < max(keep, a.slow()) && a.err == nil:
			return a
		case a.err != nil || age > m.limit(a):
			a = nil
		}
	}
	if m.answers == nil {
		m.answers = make(map[string]*answer[V])
	}
	for k, old := range m.answers {
		if age, over := old.age(); over && age > max(keep, m.limit(old)) {
			delete(m.answers, k)
		}
	}
	if a == nil && len(m.answers) >= maxAnswers {
		return nil
	}
	fresh := &answer[V]{done: make(chan struct{}), at: time.Now()}
	if a != nil {
		fresh.older = &older[V]{a.v, a.at.Add(m.limit(a))}
	}
	m.answers[key] = fresh
	start(fresh)
	return fresh
}

// age returns the time since the question of a, and whether its answer is read.
func (a *answer[V]) age() (age time.Duration, over bool) {
	select {
	case <-a.done:
		return time.Since(a.at), true
	default:
		return 0, false
	}
}
