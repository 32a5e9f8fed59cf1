package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// The first number of a script's answer.
const (
	noQueue     = 0
	done        = 1
	otherLevels = 2
	noOwner     = 3
	notFound    = 4
)

// errAnswer: the server answered what no script of ours answers.
var errAnswer = errors.New("redis: a script's answer cannot be understood")

// queue is what this process knows of a queue.
type queue struct {
	b      *Broker
	name   string
	names  names
	out    *batcher[outgoing] // messages on their way
	warned sync.Once

	mu     sync.Mutex
	levels *levels // as last heard of
}

// levels are a queue's priority levels. They do not change.
type levels struct {
	text   string // as the server keeps them
	bounds []int
	cache  sync.Map // *script: the keys that it is given, where there is no other queue
}

// keys are the keys that a script is given.
func (l *levels) keys(s *script, q, from *queue) []string {
	if from != nil {
		return s.keys(q, from, len(l.bounds))
	}
	if keys, ok := l.cache.Load(s); ok {
		return keys.([]string) //nolint:forcetypeassert // nothing else is in it
	}
	keys := s.keys(q, nil, len(l.bounds))
	l.cache.Store(s, keys)
	return keys
}

// of returns the level of a priority, from 0.
func (l *levels) of(priority int) int {
	for i, bound := range l.bounds {
		if priority <= bound {
			return i
		}
	}
	return max(0, len(l.bounds)-1)
}

// queue returns what there is to know of a queue by its name.
func (b *Broker) queue(name string) (*queue, error) {
	if q, ok := b.queues.Load(name); ok {
		return q.(*queue), nil //nolint:forcetypeassert // nothing else is in it
	}
	if !keyset.ValidName(name) {
		return nil, fmt.Errorf("redis queue %.128q: %w: not a queue's name", name, broker.ErrMalformed)
	}
	q := &queue{b: b, name: name, names: newNames(b.cfg.Namespace, name)}
	q.levels = q.parse("")
	q.out = &batcher[outgoing]{b: b, ctx: b.out, most: maxBatch, send: q.send, more: wake.New()}
	got, _ := b.queues.LoadOrStore(name, q)
	return got.(*queue), nil //nolint:forcetypeassert // nothing else is in it
}

// parse takes levels apart, as the server keeps them.
func (q *queue) parse(text string) *levels {
	l := &levels{text: text}
	for s := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			l.bounds = append(l.bounds, n)
		}
	}
	return l
}

// levelsText is how the server keeps levels.
func levelsText(bounds []int) string {
	s := make([]string, len(bounds))
	for i, n := range bounds {
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ",")
}

func (q *queue) known() *levels {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.levels
}

// learn notes the levels that the server has told of.
func (q *queue) learn(text string) *levels {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.levels.text != text {
		q.levels = q.parse(text)
	}
	return q.levels
}

// evaluator executes a script, once or until it was.
type evaluator func(ctx context.Context, s *redisconn.Script, keys []string, args ...any) (any, error)

// eval executes a script that is not told of levels.
func (q *queue) eval(ctx context.Context, eval evaluator, s *script, args ...any) (any, error) {
	return eval(ctx, s.Script, q.known().keys(s, q, nil), args...)
}

// call executes a script that is given the queue's levels as its first argument. When the queue has others than this process
// knew of, it is executed again with these. It returns the answer and the levels, or an error of the port or the connection.
func (q *queue) call(ctx context.Context, eval evaluator, s *script, args ...any) ([]any, *levels, error) {
	return q.callFrom(ctx, eval, s, nil, args...)
}

// callFrom is call of a script that takes a message from another queue, or the same.
func (q *queue) callFrom(ctx context.Context, eval evaluator, s *script, from *queue, args ...any) ([]any, *levels, error) {
	l := q.known()
	for range 3 {
		v, err := eval(ctx, s.Script, l.keys(s, q, from), append([]any{l.text}, args...)...)
		if err != nil {
			return nil, l, err
		}
		answer, status, err := take(v)
		switch {
		case err != nil:
			return nil, l, err
		case status == noQueue:
			return nil, l, broker.ErrNoQueue
		case status == otherLevels:
			l = q.learn(text(answer, 1))
			continue
		}
		return answer, l, nil
	}
	return nil, l, fmt.Errorf("%w: the queue's levels change", errAnswer)
}

// take returns a script's answer and its first number.
func take(v any) ([]any, int64, error) {
	answer, ok := v.([]any)
	status, isInt := element(answer, 0).(int64)
	if !ok || !isInt {
		return nil, 0, errAnswer
	}
	return answer, status, nil
}

// element returns an element of an answer, nil if there is none.
func element(answer []any, i int) any {
	if i >= len(answer) {
		return nil
	}
	return answer[i]
}

func number(answer []any, i int) int64 {
	n, _ := element(answer, i).(int64)
	return n
}

func text(answer []any, i int) string {
	s, _ := element(answer, i).(string)
	return s
}
