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

// ErrUnheard reports that the revocation is stored, but that no running consumer with a [List] on
// this bus has answered. Consumers with a List that start later know the revocation. Consumers of
// versions before this error never answer.
var ErrUnheard = errors.New("revoke: stored, but no running consumer answered; set consumer.Config.Revocations")

// A Revoker asks for listeners, and the lists of consumers answer. Both are events that no bus
// stores. Each list waits a random time before it answers. It receives the answers of other lists
// and does not answer if there was one already.
const (
	typeAsk     = "revocation-ask"
	typeAnswer  = "revocation-heard"
	answerAfter = 40 * time.Millisecond // maximum
	askAgain    = 500 * time.Millisecond
	askFor      = 3 * time.Second
	maxAsked    = 1000 // asks that a list answers at a time
)

// hearingEvent returns an ask or an answer. Both have the same token.
func hearingEvent(typ, token, node string) events.Event {
	return events.Event{Type: typ, NodeID: node, Time: time.Now(), Fields: map[string]any{fieldToken: token}}
}

// heard asks for listeners and blocks until a consumer's list answers. It repeats the question
// every askAgain. Returns nil after an answer. Returns [ErrUnheard] without an answer within
// askFor, and together with an error of the bus.
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

// awaitAnswer blocks until the answer with this token comes and ignores other events. Returns the
// error of the subscription, also when ctx ends.
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

// answerAsks answers the questions of Revokers for listeners. It blocks until the list or the bus
// is closed. After other errors of the bus, which it logs at debug level, it waits and retries.
func (l *List) answerAsks() {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := l.answerSome()
		if l.ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
			return
		}
		l.cfg.Logger.LogAttrs(l.ctx, slog.LevelDebug, "cannot answer whether a consumer receives revocations; trying again", slog.Any("error", err))
		if !wake.Sleep(l.ctx, gap.Interval(attempt)) {
			return
		}
	}
}

// answerSome answers questions for listeners until the bus returns an error, which it returns. It
// answers only if a consumer uses the list. It waits a random time first, up to answerAfter, and
// does not answer if another list has.
func (l *List) answerSome() error {
	sub, err := l.cfg.Events.Subscribe(l.ctx, events.Filter{Types: []string{typeAsk, typeAnswer}})
	if err != nil {
		return err
	}
	defer closeSubscription(sub)
	asked := make(map[string]bool) // tokens of asks without an answer
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

// watched reports whether a consumer uses the list, by a call of Watch. A list of a producer cannot
// prevent the start of a task. It takes l.mu.
func (l *List) watched() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.watchers) > 0
}

// closeSubscription closes sub within openTimeout. It ignores the error.
func closeSubscription(sub events.Subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_ = sub.Close(ctx) // the bus closes the stream at the latest
}
