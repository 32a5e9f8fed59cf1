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

// TestRun shows that Run returns a result for everything that a handler may do.
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
				time.Sleep(time.Second) // no caller waits for it any more
				return nil, mine
			}, err: task.ErrTimeLimit, took: time.Second,
		},
		"a hard limit, obeyed at once": {
			meta: task.Metadata{TimeLimit: task.Set(time.Second)},
			run: func(ctx context.Context, _ *task.Request) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
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
				time.Sleep(time.Minute) // all remaining goroutines end
			})
		}
	}
}

// TestRunHere shows that without a hard limit a handler runs on the caller's goroutine and can end
// it.
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

// TestGrace shows that a handler that returns within its grace after its hard limit is not stuck.
// Run waits for it, but its result does not count.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for late, want := range map[time.Duration]int64{0: 0, guard.Grace - 1: 0, guard.Grace + 1: 1} {
			var most atomic.Int64 // changes from two goroutines, one after the other
			began := time.Now()
			got, err := guard.Run(t.Context(), task.HandlerFunc(func(ctx context.Context, _ *task.Request) (any, error) {
				<-ctx.Done()
				time.Sleep(late)
				return 1, nil
			}), request(task.Metadata{TimeLimit: task.Set(time.Second)}), func(_ *task.Request, delta int) { most.Store(max(most.Load(), int64(delta))) })
			if took := time.Since(began); took != time.Second+min(late, guard.Grace) || most.Load() != want {
				t.Errorf("%v late: Run took %v, %d were stuck", late, took, most.Load())
			}
			// at the limit itself both ends are right
			if late > 0 && (!errors.Is(err, task.ErrTimeLimit) || got != nil) {
				t.Errorf("%v late: %v, %v", late, got, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestStuck shows that a handler counts as stuck from the end of its grace until it ends.
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
