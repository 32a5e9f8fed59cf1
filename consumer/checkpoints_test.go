package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// countingStore counts the calls of its store about checkpoints, and keeps their values.
type countingStore struct {
	resultstore.ResultStore
	to resultstore.Checkpointer

	mu     sync.Mutex
	calls  []string
	values []resultstore.Checkpoint
}

func (s *countingStore) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	err := s.to.SaveCheckpoint(ctx, a, c)
	s.note("save "+c.Name, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, c)
	return err
}

func (s *countingStore) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	all, err := s.to.LoadCheckpoints(ctx, a)
	s.note(fmt.Sprint("load ", len(all)), err)
	return all, err
}

// note adds a call with its outcome.
func (s *countingStore) note(call string, err error) {
	if errors.Is(err, resultstore.ErrStale) {
		call += " stale"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// want fails the test unless these are the calls since the last want.
func (s *countingStore) want(t *testing.T, when string, calls ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("%s: the store was called for %q, want %q", when, s.calls, calls)
	}
	s.calls = nil
}

// checkpointTable runs fn as the handler of the task "walk" in a bubble. The calls of the store are
// counted. fn gets the number of the attempt, from 1.
func checkpointTable(t *testing.T, change func(*consumer.Config), fn func(ctx context.Context, attempt int) (string, error), during func(t *testing.T, b *table, s *countingStore, submit func(opts ...task.Option) *task.Future[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{}
		b := newTable(t, func(c *consumer.Config) {
			s.ResultStore, s.to = c.Results, c.Results.(resultstore.Checkpointer)
			c.Results = s
			if change != nil {
				change(c)
			}
		})
		walk := task.New[string, string]("walk", task.WithMaxRetries(20), task.WithRetryDelay(time.Second))
		attempts := 0
		must0(t, walk.Handle(b.c, func(ctx context.Context, _ string) (string, error) {
			attempts++
			return fn(ctx, attempts)
		}))
		b.run()
		during(t, b, s, func(opts ...task.Option) *task.Future[string] {
			f, err := walk.Submit(t.Context(), b.p, "", opts...)
			must0(t, err)
			return f
		})
		b.end()
	})
}

// counting returns a function for Checkpoint that counts its calls in n and returns v.
func counting[R any](n *int, v R) func(context.Context) (R, error) {
	return func(context.Context) (R, error) {
		*n++
		return v, nil
	}
}

// get returns the result of a future, within an hour.
func get[R any](t *testing.T, f *task.Future[R]) (R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
	defer cancel()
	return f.Get(ctx)
}

// TestCheckpointOfAnEarlierAttempt shows that a stored checkpoint does not run again after a retry,
// and that a failed one does. A first attempt reads nothing and writes once for each.
func TestCheckpointOfAnEarlierAttempt(t *testing.T) {
	type receipt struct {
		Number int
		Lines  []string
	}
	var first, second, cursor int
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		r, err := task.Checkpoint(ctx, "first", counting(&first, receipt{7, []string{"a", "b"}}))
		if err != nil || r.Number != 7 || len(r.Lines) != 2 {
			return "", task.Fail(fmt.Errorf("first: %+v, %w", r, err))
		}
		at, found, err := task.Load[int](ctx, "cursor")
		if err != nil || found != (attempt > 1) || at != 10*(attempt-1) {
			return "", task.Fail(fmt.Errorf("cursor: %d, %v, %w", at, found, err))
		}
		cursor = 10 * attempt
		if err := task.Save(ctx, "cursor", cursor); err != nil {
			return "", err
		}
		if at, found, err = task.Load[int](ctx, "cursor"); at != cursor || !found || err != nil {
			return "", task.Fail(fmt.Errorf("own cursor: %d, %v, %w", at, found, err))
		}
		s, err := task.Checkpoint(ctx, "second", func(context.Context) (string, error) {
			if second++; second < 3 {
				return "lost", errors.New("not yet")
			}
			return "kept", nil
		})
		if err != nil {
			return s, task.Retry(err)
		}
		return s, nil
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		synctest.Wait()
		s.want(t, "a first attempt", "save first", "save cursor")
		if v, err := get(t, f); v != "kept" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "two retries", "load 2", "save cursor", "load 2", "save cursor", "save second")
		if first != 1 || second != 3 {
			t.Errorf("first ran %d times, second %d; want 1 and 3", first, second)
		}
		if _, err := b.store.LoadCheckpoints(t.Context(), resultstore.Attempt{ID: f.ID(), Generation: 9}); !errors.Is(err, resultstore.ErrStale) {
			t.Errorf("the record is final: %v", err)
		}
	})
}

// TestCheckpointsEndWithTheTask shows that a success deletes the checkpoints, also if its own
// attempt used none, and that a failure keeps them for the requeue.
func TestCheckpointsEndWithTheTask(t *testing.T) {
	var runs int
	fixed := false
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		if _, err := task.Checkpoint(ctx, "a", counting(&runs, "1")); err != nil {
			return "", err
		}
		if !fixed {
			return "", task.Fail(errors.New("broken"))
		}
		return "done", nil
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit(task.WithID("one"))
		if _, err := get(t, f); err == nil {
			t.Error("the task has succeeded")
		}
		time.Sleep(29 * 24 * time.Hour) // its record expires after a day
		fixed = true
		if rep := b.requeueAll(t); rep.Done != 1 {
			t.Fatalf("requeue: %+v", rep)
		}
		time.Sleep(time.Minute)
		if rec := b.rec(t, f.ID()); rec.State != task.StateSucceeded || runs != 1 {
			t.Errorf("after the requeue: %s, %d runs of the checkpoint; want one", rec.State, runs)
		}
		s.want(t, "a failure and a requeue", "save a", "load 1")
		if n := checkpointsOf(t, b, f.ID()); n != 0 {
			t.Errorf("%d checkpoints after the success", n)
		}
	})
}

// checkpointsOf returns how many checkpoints are stored for a task whose record has expired by
// then.
func checkpointsOf(t *testing.T, b *table, id task.ID) int {
	t.Helper()
	time.Sleep(25 * time.Hour)
	all, err := b.store.LoadCheckpoints(t.Context(), resultstore.Attempt{ID: id, Generation: 1 << 30})
	must0(t, err)
	return len(all)
}

// TestCheckpointsThroughCopies shows that checkpoints are found after a snooze, a retry, and a
// requeue by a process that did not know the store. A success that used them deletes them.
func TestCheckpointsThroughCopies(t *testing.T) {
	var runs int
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		if _, err := task.Checkpoint(ctx, "a", counting(&runs, attempt)); err != nil {
			return "", err
		}
		switch attempt {
		case 1:
			return "", task.Snooze(time.Hour)
		case 2, 5:
			return "", task.Retry(nil)
		case 3, 4:
			return "", task.Fail(errors.New("broken"))
		}
		return "", nil
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit(task.WithID("one"))
		if _, err := get(t, f); err == nil {
			t.Error("the task has succeeded")
		}
		s.want(t, "a snooze, a retry and a failure", "save a", "load 1", "load 1")
		for i := range 2 { // the requeueing process does not know the store
			l, err := deadletter.New(deadletter.Config{Broker: b.server.Connect()})
			must0(t, err)
			rep, err := l.Requeue(t.Context(), "default", deadletter.Filter{})
			if err != nil || rep.Done != 1 {
				t.Fatalf("requeue %d: %+v, %v", i, rep, err)
			}
			time.Sleep(time.Minute)
		}
		if rec := b.rec(t, f.ID()); rec.State != task.StateSucceeded || runs != 1 {
			t.Errorf("the task is %s, %v after %d runs of its checkpoint", rec.State, rec.Error, runs)
		}
		s.want(t, "two requeues and a retry", "load 0 stale", "load 1", "load 0 stale", "load 1", "load 1")
		if n := checkpointsOf(t, b, f.ID()); n != 0 {
			t.Errorf("%d checkpoints after the success", n)
		}
	})
}

// TestStaleCheckpoint shows that an attempt whose task was taken from it cannot store a checkpoint
// once another attempt has read them.
func TestStaleCheckpoint(t *testing.T) {
	var lost error
	var runs int
	var blocked, free chan struct{}
	var own *membroker.Broker
	checkpointTable(t, func(c *consumer.Config) { own = c.Broker.(*membroker.Broker) }, func(ctx context.Context, attempt int) (string, error) {
		ctx = context.WithoutCancel(ctx) // it ends when the task is lost, if the process is not suspended
		v, err := task.Checkpoint(ctx, "a", func(context.Context) (int, error) {
			if runs++; attempt == 1 {
				close(blocked)
				<-free
			}
			return attempt, nil
		})
		if attempt == 1 {
			lost = err
		}
		return fmt.Sprint(v), err
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		blocked, free = make(chan struct{}), make(chan struct{})
		f := submit()
		<-blocked
		b.server.Disconnect(own)
		if v, err := get(t, f); v != "2" || err != nil {
			t.Errorf("the second attempt ended with %q, %v", v, err)
		}
		close(free)
		synctest.Wait()
		if !errors.Is(lost, resultstore.ErrStale) || runs != 2 {
			t.Errorf("the first attempt stored its checkpoint: %v, %d runs", lost, runs)
		}
		s.want(t, "two attempts", "load 0", "save a", "save a stale")
	})
}

// TestCheckpointNames shows that a name used twice in an attempt, an invalid one and too many are
// refused before the function runs.
func TestCheckpointNames(t *testing.T) {
	var runs int
	fn := counting(&runs, 1)
	checkpointTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		_, err := task.Checkpoint(ctx, "a", fn)
		must0(t, err)
		must0(t, task.Save(ctx, "b", 1))
		must0(t, task.Save(ctx, "b", 2))
		for what, err := range map[string]error{
			"a checkpoint twice":      second(task.Checkpoint(ctx, "a", fn)),
			"a checkpoint of a saved": second(task.Checkpoint(ctx, "b", fn)),
			"a save of a checkpoint":  task.Save(ctx, "a", 1),
			"no name":                 second(task.Checkpoint(ctx, "", fn)),
			"a long name":             second(task.Checkpoint(ctx, strings.Repeat("x", 256), fn)),
			"a control character":     task.Save(ctx, "\n", 1),
			"another type":            third(task.Load[[]string](ctx, "a")),
			"no value":                task.Save(ctx, "c", func() {}),
		} {
			if !errors.Is(err, task.ErrBadCheckpoint) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for i := range resultstore.MaxCheckpoints - 2 {
			must0(t, task.Save(ctx, fmt.Sprint("more ", i), i))
		}
		if err := second(task.Checkpoint(ctx, "one more", fn)); !errors.Is(err, resultstore.ErrTooLarge) {
			t.Errorf("a name too many: %v", err)
		}
		if err := task.Save(ctx, "b", strings.Repeat("x", resultstore.MaxCheckpointBytes)); !errors.Is(err, resultstore.ErrTooLarge) && !errors.Is(err, task.ErrBadCheckpoint) {
			t.Errorf("too many bytes: %v", err)
		}
		return "", nil
	}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
		if _, err := get(t, submit()); err != nil || runs != 1 {
			t.Errorf("%v, %d runs", err, runs)
		}
	})
}

// second returns the error of a call of Checkpoint.
func second[R any](_ R, err error) error { return err }

// third returns the error of a call of Load.
func third[R any](_ R, _ bool, err error) error { return err }

// TestCheckpointUnsupported shows that the error comes before the function runs, and names the
// reason, without a store that keeps checkpoints.
func TestCheckpointUnsupported(t *testing.T) {
	var runs int
	fn := counting(&runs, 1)
	var ended chan error
	for what, c := range map[string]struct {
		change func(*consumer.Config)
		opts   []task.Option
		reason string
	}{
		"no result":     {nil, []task.Option{task.WithIgnoreResult(true)}, "IgnoreResult"},
		"no store":      {func(c *consumer.Config) { c.Results = nil }, nil, "Config.Results"},
		"another store": {func(c *consumer.Config) { c.Results = &batchStore{ResultStore: c.Results, save: saveEach} }, nil, "use one in Redis"},
		"reply queues": {func(c *consumer.Config) {
			c.Results = repliesOnly{&batchStore{ResultStore: c.Results, save: saveEach}}
		}, nil, "reply queues"},
	} {
		checkpointTable(t, c.change, func(ctx context.Context, _ int) (string, error) {
			for _, err := range []error{second(task.Checkpoint(ctx, "a", fn)), task.Save(ctx, "a", 1), third(task.Load[int](ctx, "a"))} {
				if !errors.Is(err, resultstore.ErrUnsupported) || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%s: %v", what, err)
				}
			}
			ended <- nil
			return "", nil
		}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
			ended = make(chan error, 1)
			submit(c.opts...)
			<-ended
		})
	}
	var kept context.Context
	checkpointTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		kept = ctx
		return "", nil
	}, func(t *testing.T, _ *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
		_, err := get(t, submit())
		must0(t, err)
		for _, ctx := range []context.Context{t.Context(), kept} {
			for _, err := range []error{second(task.Checkpoint(ctx, "a", fn)), task.Save(ctx, "a", 1), third(task.Load[int](ctx, "a"))} {
				if !errors.Is(err, task.ErrNoCheckpoints) {
					t.Errorf("outside of the handler: %v", err)
				}
			}
		}
	})
	if runs != 0 {
		t.Errorf("the function ran %d times", runs)
	}
}

// TestSealedCheckpoint shows that values are sealed, and that a checkpoint under another name or of
// another task is refused.
func TestSealedCheckpoint(t *testing.T) {
	var runs int
	var s *countingStore
	checkpointTable(t, func(c *consumer.Config) {
		c.Wire.Sealer = testRing(t, "k")
		c.Wire.AcceptPlain = true // the producer of the table seals nothing
	}, func(ctx context.Context, attempt int) (string, error) {
		v, err := task.Checkpoint(ctx, "a", counting(&runs, "a secret of the bank"))
		if attempt == 1 {
			return "", task.Retry(nil)
		}
		if err != nil || v != "a secret of the bank" {
			return "", task.Fail(fmt.Errorf("%q, %w", v, err))
		}
		r, _ := task.FromContext(ctx)
		moved := s.values[0]
		moved.Name = "b"
		must0(t, s.to.SaveCheckpoint(ctx, resultstore.Attempt{ID: r.ID, Generation: r.Generation, Deliveries: r.Deliveries}, moved))
		if attempt == 2 {
			return "", task.Retry(nil)
		}
		if err := third(task.Load[string](ctx, "b")); !errors.Is(err, serializer.ErrForged) || !errors.Is(err, task.ErrBadCheckpoint) {
			return "", task.Fail(fmt.Errorf("a checkpoint under another name: %w", err))
		}
		return "", nil
	}, func(t *testing.T, b *table, store *countingStore, submit func(...task.Option) *task.Future[string]) {
		s = store
		f := submit()
		time.Sleep(time.Minute)
		if rec := b.rec(t, f.ID()); rec.State != task.StateSucceeded || runs != 1 {
			t.Errorf("the task is %s, %v, after %d runs of its checkpoint", rec.State, rec.Error, runs)
		}
		if v := s.values[0]; bytes.Contains(v.Value, []byte("secret")) || !strings.HasSuffix(v.ContentType, serializer.CodingSealed) {
			t.Errorf("stored %s %q", v.ContentType, v.Value)
		}
	})
}
