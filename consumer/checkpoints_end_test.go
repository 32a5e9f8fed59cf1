package consumer_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// TestCheckpointsOfAnAnsweredTask shows that the answer of a task deletes the checkpoints, which an
// earlier attempt has stored.
func TestCheckpointsOfAnAnsweredTask(t *testing.T) {
	var service *jobs.Service
	var runs int
	checkpointTable(t, func(c *consumer.Config) {
		memory, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err = jobs.New(jobs.Config{Store: memory})
		must0(t, err)
		c.Deferrals = deferralsOf(t, service)
	}, func(ctx context.Context, _ int) (string, error) {
		if err := task.Expect(ctx, "key"); err != nil {
			return "", err
		}
		if _, err := task.Checkpoint(ctx, "a", counting(&runs, 1)); err != nil {
			return "", err
		}
		return "", task.Defer("key")
	}, func(t *testing.T, b *table, _ *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		synctest.Wait()
		_, err := service.Complete(t.Context(), "walk", "key", "answer")
		must0(t, err)
		if v, err := get(t, f); v != "answer" || err != nil || runs != 1 {
			t.Errorf("the task ended with %q, %v after %d runs", v, err, runs)
		}
		if n := checkpointsOf(t, b, f.ID()); n != 0 {
			t.Errorf("%d checkpoints after the answer", n)
		}
	})
}

// TestCheckpointsOfARevokedTask shows that a revocation between two attempts deletes the
// checkpoints.
func TestCheckpointsOfARevokedTask(t *testing.T) {
	var runs int
	var bus *memevents.Bus
	var list *revoke.List
	checkpointTable(t, func(c *consumer.Config) {
		bus = memevents.New(memevents.Config{Retain: revoke.Retention()})
		var err error
		list, err = revoke.New(revoke.Config{Events: bus})
		must0(t, err)
		c.Revocations = list
	}, func(ctx context.Context, _ int) (string, error) {
		if _, err := task.Checkpoint(ctx, "a", counting(&runs, 1)); err != nil {
			return "", err
		}
		return "", task.Retry(nil, task.After(time.Hour))
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		f := submit()
		synctest.Wait()
		revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus})
		must0(t, err)
		if _, err := revoker.Revoke(t.Context(), revoke.Options{}, f.ID()); err != nil && !errors.Is(err, revoke.ErrUnheard) {
			t.Fatal(err)
		}
		if _, err := get(t, f); !errors.Is(err, task.ErrRevoked) {
			t.Errorf("the task ended with %v", err)
		}
		s.want(t, "a revoked task", "save a")
		if n := checkpointsOf(t, b, f.ID()); n != 0 || runs != 1 {
			t.Errorf("%d checkpoints after the revocation, %d runs", n, runs)
		}
		must0(t, list.Close(t.Context()))
		must0(t, bus.Close(t.Context()))
	})
}

// TestCheckpointsOfARetriedWorkflow shows that Retry of a workflow finds the checkpoints of the
// step that failed.
func TestCheckpointsOfARetriedWorkflow(t *testing.T) {
	var runs int
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		v, err := task.Checkpoint(ctx, "a", counting(&runs, "kept"))
		if err == nil && attempt == 1 {
			err = task.Fail(errors.New("broken"))
		}
		return v, err
	}, func(t *testing.T, b *table, s *countingStore, _ func(...task.Option) *task.Future[string]) {
		walk := task.New[string, string]("walk")
		ends := task.New[string, string]("ends")
		must0(t, ends.Handle(b.c, func(_ context.Context, v string) (string, error) { return v + " and passed on", nil }))
		run, err := task.Chain(walk, ends).Submit(t.Context(), b.p, "")
		must0(t, err)
		if _, err := get(t, run.Future); err == nil {
			t.Error("the workflow has succeeded")
		}
		l, err := deadletter.New(deadletter.Config{Broker: b.server.Connect(), Results: b.store})
		must0(t, err)
		rep, err := l.Retry(t.Context(), run.ID(), "default")
		if err != nil || rep.Done != 1 {
			t.Fatalf("Retry: %+v, %v", rep, err)
		}
		time.Sleep(time.Minute)
		if rec := b.rec(t, run.ID()); rec.State != task.StateSucceeded || runs != 1 {
			t.Errorf("the workflow is %s after %d runs of the checkpoint", rec.State, runs)
		}
		s.want(t, "a retried workflow", "save a", "load 1")
	})
}

// TestCheckpointsInATransaction shows that a transaction with SettleTx deletes the checkpoints if
// and only if it is committed.
func TestCheckpointsInATransaction(t *testing.T) {
	s := newTxSwarm(t, "sqlite://"+filepath.Join(t.TempDir(), "app.db"), nil)
	var runs, attempts int
	walk := task.New[string, string]("walk", task.WithMaxRetries(3), task.WithRetryDelay(0))
	must0(t, walk.Handle(s.c, func(ctx context.Context, _ string) (string, error) {
		v, err := task.Checkpoint(ctx, "a", counting(&runs, "kept"))
		if err != nil {
			return "", err
		}
		own, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return "", err
		}
		defer func() { _ = own.Rollback() }()
		if err := task.SettleTx(ctx, sqltx.Wrap(own), v); err != nil {
			return "", err
		}
		if attempts++; attempts == 1 {
			return "", task.Retry(nil)
		}
		return v, own.Commit()
	}))
	s.run(t)
	f, err := walk.Submit(t.Context(), s.p, "")
	must0(t, err)
	if v, err := f.Get(testwait.Long(t)); v != "kept" || err != nil || runs != 1 || attempts != 2 {
		t.Errorf("the task ended with %q, %v after %d attempts, %d runs of the checkpoint", v, err, attempts, runs)
	}
	var left int
	row := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM swarmiji_result_checkpoint")
	if err := row.Scan(&left); err != nil || left != 0 {
		t.Errorf("%d tasks have checkpoints, %v", left, err)
	}
	if st, err := s.broker.Stats(t.Context(), "default"); err != nil || st != (broker.Stats{}) {
		t.Errorf("the queue has %+v, %v", st, err)
	}
}
