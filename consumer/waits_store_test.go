package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// TestLongAwait shows that the checkpoints from before a wait of 31 days are still there after it,
// for one more read. Without a wait they are kept for 30 days.
func TestLongAwait(t *testing.T) {
	var runs int
	waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		if _, err := task.Checkpoint(ctx, "before", counting(&runs, 1)); err != nil {
			return "", err
		}
		return task.Await[string](ctx, "a", "k", task.AnswerWithin(32*24*time.Hour))
	}, func(t *testing.T, _ *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		time.Sleep(31 * 24 * time.Hour)
		answer(t, answers, "k", "late", jobs.Accepted)
		if v, err := get(t, f); v != "late" || err != nil || runs != 1 {
			t.Errorf("the task ended with %q, %v, after %d runs of its checkpoint", v, err, runs)
		}
		s.want(t, "a long wait", "save before", "load 1", "save a", "load 2")
	})
}

// TestLongSleepAfterARetry shows that the checkpoints from before a sleep of 40 days are still
// there after it, although an attempt in between has read them.
func TestLongSleepAfterARetry(t *testing.T) {
	var runs int
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		if _, err := task.Checkpoint(ctx, "before", counting(&runs, 1)); err != nil {
			return "", err
		}
		err := task.Sleep(ctx, "s", 40*24*time.Hour)
		if attempt == 1 {
			return "", task.Retry(err)
		}
		return "awake", err
	}, func(t *testing.T, _ *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		time.Sleep(40*24*time.Hour + time.Minute)
		if v, err := get(t, f); v != "awake" || err != nil || runs != 1 {
			t.Errorf("the task ended with %q, %v, after %d runs of its checkpoint", v, err, runs)
		}
	})
}

// TestAwaitOfALargeAnswer shows that an answer that does not fit beside the checkpoints fails the
// task, and that the error says so.
func TestAwaitOfALargeAnswer(t *testing.T) {
	waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		return task.Await[string](ctx, "a", "k")
	}, func(t *testing.T, b *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		synctest.Wait()
		answer(t, answers, "k", strings.Repeat("x", resultstore.MaxCheckpointBytes), jobs.Accepted)
		if _, err := get(t, f); err == nil || !strings.Contains(err.Error(), resultstore.ErrTooLarge.Error()) {
			t.Errorf("the task ended with %v", err)
		}
		synctest.Wait() // the dead letter follows the result
		if n := b.stats(t).Dead; n != 1 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// TestAwaitStoreAway shows that an answer is stored later, and published once, if the result store
// fails.
func TestAwaitStoreAway(t *testing.T) {
	var away *failingStore
	waitTable(t, func(c *consumer.Config) {
		away = &failingStore{countingStore: c.Results.(*countingStore)}
		c.Results = away
	}, func(ctx context.Context, _ int) (string, error) {
		return task.Await[string](ctx, "a", "k")
	}, func(t *testing.T, _ *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		synctest.Wait()
		away.left = 3
		answer(t, answers, "k", "kept", jobs.Accepted)
		if v, err := get(t, f); v != "kept" || err != nil || away.left != 0 {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "an answer", "save a", "load 1")
	})
}

// failingStore fails the next calls of SaveCheckpoint.
type failingStore struct {
	*countingStore
	left int
}

func (s *failingStore) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	if s.left > 0 {
		s.left--
		return resultstore.ErrUnavailable
	}
	return s.countingStore.SaveCheckpoint(ctx, a, c)
}

// blindDeferrals cannot tell whether an attempt is deferred. It calls lose after the first Defer.
type blindDeferrals struct {
	deferral.Store
	lose func()
}

func (s *blindDeferrals) Overtaken(context.Context, deferral.Attempt) (bool, error) {
	return false, deferral.ErrUnavailable
}

func (s *blindDeferrals) Defer(ctx context.Context, a deferral.Attempt, key string, within time.Duration) (deferral.Status, error) {
	status, err := s.Store.Defer(ctx, a, key, within)
	if lose := s.lose; lose != nil {
		s.lose = nil
		lose()
	}
	return status, err
}

// TestAwaitAfterARedelivery shows that an answer reaches its task although the message was
// delivered again after the deferral, and that delivery has read the checkpoints.
func TestAwaitAfterARedelivery(t *testing.T) {
	blind := &blindDeferrals{}
	var own *membroker.Broker
	waitTable(t, func(c *consumer.Config) {
		blind.Store, own = c.Deferrals, c.Broker.(*membroker.Broker)
		c.Deferrals = blind
	}, func(ctx context.Context, _ int) (string, error) {
		return task.Await[string](ctx, "a", "k")
	}, func(t *testing.T, b *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		blind.lose = func() { b.server.Disconnect(own) }
		f := submit()
		time.Sleep(time.Minute)
		s.want(t, "two deliveries", "load 0")
		answer(t, answers, "k", "yes", jobs.Accepted)
		if v, err := get(t, f); v != "yes" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "the answer", "save a", "load 1")
	})
}

// TestAwaitAndEarlierVersions shows that the state of such a deferral has no message where earlier
// versions look for it. They would take the answer for the result.
func TestAwaitAndEarlierVersions(t *testing.T) {
	waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		return task.Await[string](ctx, "a", "k")
	}, func(t *testing.T, _ *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		submit()
		synctest.Wait()
		var state map[string]any
		err := answers.Store().View(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
			d, err := tx.DeferralOf(ctx, "walk", "k")
			if err == nil {
				err = json.Unmarshal(d.State, &state)
			}
			return err
		})
		resumed, _ := state["resumed"].(map[string]any)
		if err != nil || state["message"] != nil || resumed["message"] == nil || resumed["checkpoint"] != "a" {
			t.Errorf("the state is %v, %v", state, errors.Unwrap(err))
		}
	})
}

// TestSleepWhenTheClockIsBehind shows that a sleep ends when its message is due by the broker's
// clock, although the consumer's clock is behind.
func TestSleepWhenTheClockIsBehind(t *testing.T) {
	attempts := 0
	checkpointTable(t, func(c *consumer.Config) {
		c.Broker = ahead{c.Broker.(*membroker.Broker), 10 * time.Second, new(atomic.Int64)}
	}, func(ctx context.Context, attempt int) (string, error) {
		attempts = attempt
		return "awake", task.Sleep(ctx, "s", 30*time.Second)
	}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
		if v, err := get(t, submit()); v != "awake" || err != nil || attempts != 2 {
			t.Errorf("the task ended with %q, %v, in %d attempts", v, err, attempts)
		}
	})
}

// TestSleepAfterASleepOfAnotherClock shows that a second sleep ends its attempt, although the
// message was held until a later time, for the first one. A sleep of no time does not.
func TestSleepAfterASleepOfAnotherClock(t *testing.T) {
	var second, none []error
	checkpointTable(t, func(c *consumer.Config) {
		c.Broker = ahead{c.Broker.(*membroker.Broker), 10 * time.Second, new(atomic.Int64)}
	}, func(ctx context.Context, _ int) (string, error) {
		if err := task.Sleep(ctx, "first", 30*time.Second); err != nil {
			return "", err
		}
		err := task.Sleep(ctx, "second", 5*time.Second)
		if second = append(second, err); err != nil {
			return "", err
		}
		time.Sleep(time.Microsecond)
		err = task.Sleep(ctx, "none", 0)
		none = append(none, err)
		return "awake", err
	}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
		if v, err := get(t, submit()); v != "awake" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		if len(second) != 2 || second[0] == nil || len(none) != 1 {
			t.Errorf("the second sleep returned %v, that of no time %v", second, none)
		}
	})
}

// TestSettleTxAfterSleep shows that a transaction does not settle a task whose attempt Sleep has
// ended.
func TestSettleTxAfterSleep(t *testing.T) {
	s := newTxSwarm(t, "sqlite://"+filepath.Join(t.TempDir(), "app.db"), nil)
	settled := make(chan error, 10)
	def := task.New[string, string]("sleeper")
	must0(t, def.Handle(s.c, func(ctx context.Context, id string) (string, error) {
		err := task.Sleep(ctx, "s", time.Second)
		own := s.begin(ctx, id)
		settled <- task.SettleTx(ctx, sqltx.Wrap(own), "settled")
		if err != nil {
			return "", errors.Join(err, own.Rollback())
		}
		return "", own.Commit()
	}))
	stop := s.run(t)
	f, err := def.Submit(t.Context(), s.p, "x")
	must0(t, err)
	if v, err := f.Get(testwait.Long(t)); v != "settled" || err != nil {
		t.Errorf("the task ended with %q, %v", v, err)
	}
	stop()
	if err := <-settled; !errors.Is(err, task.ErrBadCheckpoint) {
		t.Errorf("SettleTx after Sleep: %v", err)
	}
	if n := s.count("x"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}
