package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// The statuses of a script: the first number of its answer.
const (
	noQueue     = 0
	done        = 1
	otherLevels = 2
	noOwner     = 3
	notFound    = 4
)

// errAnswer: the server's answer is not one of the adapter's scripts.
var errAnswer = errors.New("redis: unexpected answer of a script")

// queue holds the state of a queue in this process.
type queue struct {
	b      *Broker
	name   string
	names  names
	out    *batcher[outgoing] // sends published messages
	warned sync.Once

	mu     sync.Mutex
	levels *levels // as the server reported them last
}

// levels holds the priority levels of a queue, and whether it is fair. It does not change.
type levels struct {
	text   string // as stored on the server
	bounds []int
	fair   bool
	cache  sync.Map // *script -> its keys, for scripts that use one queue
}

// keys returns the keys of script s for queue q. from is the queue from which a message is moved,
// or nil. The result must not be changed.
func (l *levels) keys(s *script, q, from *queue) []string {
	if from != nil {
		return s.keys(q, from, l)
	}
	if keys, ok := l.cache.Load(s); ok {
		return keys.([]string) //nolint:forcetypeassert // nothing else is in it
	}
	keys := s.keys(q, nil, l)
	l.cache.Store(s, keys)
	return keys
}

// number returns the number of levels, at least 1.
func (l *levels) number() int { return max(1, len(l.bounds)) }

// readyKeys returns the keys that exist while the queue n has ready messages: the ready list of
// each level, and of a fair queue then the set of fairness keys of each level.
func (l *levels) readyKeys(n *names) []string {
	keys := make([]string, 0, 2*l.number())
	for i := range l.number() {
		keys = append(keys, n.ready(i))
	}
	if l.fair {
		for i := range l.number() {
			keys = append(keys, n.turns(i))
		}
	}
	return keys
}

// levelOf returns the index of the level for a priority: the first one whose bound is at least
// priority, otherwise the last.
func (l *levels) levelOf(priority int) int {
	for i, bound := range l.bounds {
		if priority <= bound {
			return i
		}
	}
	return max(0, len(l.bounds)-1)
}

// queue returns the state of the queue with the given name and creates it if necessary. It sends
// nothing to the server and takes no lock. Returns ErrMalformed if the name is not valid.
func (b *Broker) queue(name string) (*queue, error) {
	if q, ok := b.queues.Load(name); ok {
		return q.(*queue), nil //nolint:forcetypeassert // nothing else is in it
	}
	if !naming.ValidName(name) {
		return nil, fmt.Errorf("redis queue %.128q: %w: not a valid queue name", name, broker.ErrMalformed)
	}
	q := &queue{b: b, name: name, names: newNames(b.cfg.Namespace, name)}
	q.levels = q.parseLevels("")
	q.out = &batcher[outgoing]{b: b, ctx: b.publishCtx, maxEntries: maxBatch, send: q.sendBatch, added: wake.New()}
	got, _ := b.queues.LoadOrStore(name, q)
	return got.(*queue), nil //nolint:forcetypeassert // nothing else is in it
}

// fairMark is the first part of the stored levels of a fair queue. An older version of the library
// skips it.
const fairMark = "fair"

// parseLevels returns the levels from their stored form, parts with commas between. The first part
// may be fairMark, the others are bounds. Parts that are not numbers are skipped; "" is one level.
func (q *queue) parseLevels(text string) *levels {
	l := &levels{text: text, fair: strings.HasPrefix(text, fairMark)}
	for s := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			l.bounds = append(l.bounds, n)
		}
	}
	return l
}

// levelsText returns the stored form of the level bounds, and of fairness, see parseLevels.
func levelsText(bounds []int, fair bool) string {
	s := make([]string, 0, len(bounds)+1)
	if fair {
		s = append(s, fairMark)
	}
	for _, n := range bounds {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ",")
}

// knownLevels returns the levels that the server reported last. It takes q.mu.
func (q *queue) knownLevels() *levels {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.levels
}

// storeLevels stores the levels that the server has reported as text, and returns them. It takes
// q.mu.
func (q *queue) storeLevels(text string) *levels {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.levels.text != text {
		q.levels = q.parseLevels(text)
	}
	return q.levels
}

// evaluator executes a script on keys and returns its answer. Some evaluators send it at most once,
// some send it again until it was executed.
type evaluator func(ctx context.Context, s *redisconn.Script, keys []string, args ...any) (any, error)

// eval executes a script that does not get the queue's levels as an argument, by calling the
// function eval, and returns its answer. It takes q.mu, but does not hold it while it waits for the
// server.
func (q *queue) eval(ctx context.Context, eval evaluator, s *script, args ...any) (any, error) {
	l := q.knownLevels()
	s = s.forLevels(l)
	return eval(ctx, s.Script, l.keys(s, q, nil), args...)
}

// callWithLevels executes a script whose first argument is the queue's levels. It returns the
// answer and the levels.
//
// If the server answers that the queue has other levels, the script has changed nothing.
// callWithLevels then stores these levels in q and executes the script again, up to three times
// in all. Returns ErrNoQueue if the queue does not exist.
func (q *queue) callWithLevels(ctx context.Context, eval evaluator, s *script, args ...any) ([]any, *levels, error) {
	return q.callFrom(ctx, eval, s, nil, args...)
}

// callFrom executes a script like callWithLevels. The script moves a message from the queue from to
// q. The two may be the same; nil means that the script uses only q. It waits for the server.
// Returns ErrNoQueue if q does not exist, errAnswer if the levels differ three times or the answer
// has another form.
func (q *queue) callFrom(ctx context.Context, eval evaluator, s *script, from *queue, args ...any) ([]any, *levels, error) {
	l := q.knownLevels()
	for range 3 {
		s := s.forLevels(l)
		v, err := eval(ctx, s.Script, l.keys(s, q, from), append([]any{l.text}, args...)...)
		if err != nil {
			return nil, l, err
		}
		answer, status, err := parseAnswer(v)
		switch {
		case err != nil:
			return nil, l, err
		case status == noQueue:
			return nil, l, broker.ErrNoQueue
		case status == otherLevels:
			l = q.storeLevels(text(answer, 1))
			continue
		}
		return answer, l, nil
	}
	return nil, l, fmt.Errorf("%w: the queue's priority levels or its fairness changed during the call", errAnswer)
}

// parseAnswer returns the answer of a script as a list, and its status, the list's first element.
// Returns errAnswer if v is not a list that begins with an integer.
func parseAnswer(v any) ([]any, int64, error) {
	answer, ok := v.([]any)
	status, isInt := element(answer, 0).(int64)
	if !ok || !isInt {
		return nil, 0, errAnswer
	}
	return answer, status, nil
}

// element returns element i of an answer, nil if it does not exist.
func element(answer []any, i int) any {
	if i >= len(answer) {
		return nil
	}
	return answer[i]
}

// number returns element i of an answer as an integer, 0 if it is not one.
func number(answer []any, i int) int64 {
	n, _ := element(answer, i).(int64)
	return n
}

// text returns element i of an answer as a string, "" if it is not one.
func text(answer []any, i int) string {
	s, _ := element(answer, i).(string)
	return s
}
