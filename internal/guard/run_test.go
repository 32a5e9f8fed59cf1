package guard_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/task"
)

func request(m task.Metadata) *task.Request {
	return task.NewRequest(&task.Envelope{ID: "id", Name: "x", Meta: m}, nil)
}

// TestRun: whatever a handler does, there is an answer.
func TestRun(t *testing.T) {
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		meta task.Metadata
		run  task.HandlerFunc
		want any
		err  error
		took time.Duration
	}{
		"a result":                    {run: func(context.Context, *task.Request) (any, error) { return 1, nil }, want: 1},
		"an error":                    {run: func(context.Context, *task.Request) (any, error) { return nil, mine }, err: mine},
		"a panic":                     {run: func(context.Context, *task.Request) (any, error) { panic("x") }, err: task.ErrPanic},
		"a panic that cannot be read": {run: func(context.Context, *task.Request) (any, error) { panic(mute{}) }, err: task.ErrPanic},
		"a panic within a limit": {
			meta: task.Metadata{TimeLimit: task.Set(time.Second)},
			run:  func(context.Context, *task.Request) (any, error) { panic(mute{}) }, err: task.ErrPanic,
		},
		"the end of its goroutine": {run: func(context.Context, *task.Request) (any, error) {
			runtime.Goexit()
			return nil, nil
		}, err: guard.ErrGoexit},
		"a soft limit": {
			meta: task.Metadata{SoftTimeLimit: task.Set(time.Second)},
			run: func(ctx context.Context, _ *task.Request) (any, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				return nil, context.Cause(ctx)
			}, err: task.ErrSoftTimeLimit, took: 2 * time.Second,
		},
		"a hard limit": {
			meta: task.Metadata{TimeLimit: task.Set(time.Second)},
			run: func(ctx context.Context, _ *task.Request) (any, error) {
				<-ctx.Done()
				time.Sleep(time.Second) // nobody waits for it any more
				return nil, mine
			}, err: task.ErrTimeLimit, took: time.Second,
		},
	} {
		for where, run := range map[string]func(context.Context, task.Handler, *task.Request, func(*task.Request, int)) (any, error){
			"here": guard.Run, "apart": guard.Apart,
		} {
			if where == "here" && errors.Is(c.err, guard.ErrGoexit) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				name := name + " " + where
				began := time.Now()
				got, err := run(t.Context(), c.run, request(c.meta), nil)
				if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("%s: %v, %v", name, got, err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("%s: it took %v", name, took)
				}
				if s, ok := errors.AsType[task.Stacker](err); errors.Is(err, task.ErrPanic) && !errors.Is(err, guard.ErrGoexit) && (!ok || s.Stack() == "") {
					t.Errorf("%s: no stack", name)
				}
				time.Sleep(time.Minute) // whatever goes on ends
			})
		}
	}
}

// TestRunHere: without a hard limit a handler has the caller's goroutine, which it can end.
func TestRunHere(t *testing.T) {
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = guard.Run(t.Context(), task.HandlerFunc(func(context.Context, *task.Request) (any, error) {
			runtime.Goexit()
			return nil, nil
		}), request(task.Metadata{SoftTimeLimit: task.Set(time.Minute)}), nil)
		returned = true
	}()
	<-ended
	if returned {
		t.Error("the handler had a goroutine of its own")
	}
}

// TestStuck: a handler is stuck from its hard limit on until it ends, however it does.
func TestStuck(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("late") }, "exits": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var stuck atomic.Int64
			release := make(chan struct{})
			q := request(task.Metadata{TimeLimit: task.Set(time.Second)})
			_, err := guard.Run(t.Context(), task.HandlerFunc(func(context.Context, *task.Request) (any, error) {
				<-release
				end()
				return nil, nil
			}), q, func(of *task.Request, delta int) {
				if of != q {
					t.Error("of another request")
				}
				stuck.Add(int64(delta))
			})
			if !errors.Is(err, task.ErrTimeLimit) || stuck.Load() != 1 {
				t.Errorf("%s: %v, %d are stuck", name, err, stuck.Load())
			}
			close(release)
			synctest.Wait()
			if stuck.Load() != 0 {
				t.Errorf("%s: %d are stuck at the end", name, stuck.Load())
			}
		})
	}
}
