package revoke

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// ErrUnheard says that the revocation is stored, and that no running consumer has a [List] on this
// bus.
// Those with a list that start later know it. A consumer of a version before this error never
// answers.
var ErrUnheard = errors.New("revoke: stored, but no running consumer listens; set consumer.Config.Revocations")

// A Revoker asks who listens, and the lists of consumers answer. Both are events that no bus keeps.
// Each list waits for a moment before it answers; it sees the answers of the others, and one is
// enough.
const (
	typeAsk     = "revocation-ask"
	typeAnswer  = "revocation-heard"
	answerAfter = 40 * time.Millisecond // at most
	askAgain    = 500 * time.Millisecond
	askFor      = 3 * time.Second
	maxAsked    = 1000 // that a list answers at a time
)

// hearingEvent is an ask or an answer; token says which belong together.
func hearingEvent(typ, token, node string) events.Event {
	return events.Event{Type: typ, NodeID: node, Time: time.Now(), Fields: map[string]any{fieldToken: token}}
}

// heard returns ErrUnheard unless the list of a consumer answers.
func (r *Revoker) heard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	sub, err := r.cfg.Events.Subscribe(ctx, events.Filter{Types: []string{typeAnswer}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnheard, err)
	}
	defer closeSubscription(sub)
	token := rand.Text()
	for ctx.Err() == nil {
		if err := r.cfg.Events.Publish(ctx, hearingEvent(typeAsk, token, r.cfg.NodeID)); err != nil {
			return fmt.Errorf("%w: %w", ErrUnheard, err)
		}
		waiting, done := context.WithTimeout(ctx, askAgain)
		err := awaitAnswer(waiting, sub, token)
		ended := waiting.Err() != nil
		done()
		if err == nil {
			return nil
		}
		if !ended {
			return fmt.Errorf("%w: %w", ErrUnheard, err)
		}
	}
	return ErrUnheard
}

// awaitAnswer returns nil when an answer to token has come.
func awaitAnswer(ctx context.Context, sub events.Subscription, token string) error {
	for {
		e, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		if e.Type == typeAnswer && tokenOf(&e) == token {
			return nil
		}
	}
}

// answerAsks answers those that ask who listens, until the list is closed.
func (l *List) answerAsks() {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := l.answerSome()
		if l.ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
			return
		}
		l.cfg.Logger.LogAttrs(l.ctx, slog.LevelDebug, "nobody can ask just now whether revocations are heard", slog.Any("error", err))
		if !wake.Sleep(l.ctx, gap.Interval(attempt)) {
			return
		}
	}
}

// answerSome is answerAsks until the bus fails.
func (l *List) answerSome() error {
	sub, err := l.cfg.Events.Subscribe(l.ctx, events.Filter{Types: []string{typeAsk, typeAnswer}})
	if err != nil {
		return err
	}
	defer closeSubscription(sub)
	asked := make(map[string]bool) // tokens of those that nobody has answered yet
	for {
		waiting, done := l.ctx, func() {}
		if len(asked) > 0 {
			waiting, done = context.WithTimeout(l.ctx, mathrand.N(answerAfter))
		}
		e, err := sub.Receive(waiting)
		late := waiting.Err() != nil
		done()
		switch {
		case err != nil && (l.ctx.Err() != nil || !late):
			return err
		case err != nil:
			for token := range asked {
				if err := l.cfg.Events.Publish(l.ctx, hearingEvent(typeAnswer, token, l.cfg.NodeID)); err != nil {
					return err
				}
			}
			clear(asked)
		case e.Type == typeAnswer:
			delete(asked, tokenOf(&e))
		case l.watched() && len(asked) < maxAsked:
			asked[tokenOf(&e)] = true
		}
	}
}

// watched reports whether a consumer uses the list. A producer's cannot keep a task from its start.
func (l *List) watched() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.watchers) > 0
}

func closeSubscription(sub events.Subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_ = sub.Close(ctx) // the bus closes what is left
}
