package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestProcessHooks shows when the hooks of start, pause, resume and shutdown run (S72).
func TestProcessHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		note := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		b := newTable(t, func(c *consumer.Config) {
			c.Hooks = consumer.Hooks{
				BeforeStart: func(ctx context.Context) error { note("start %v", ctx.Err()); return nil },
				BeforeShutdown: func(ctx context.Context) {
					_, bounded := ctx.Deadline()
					note("shutdown %v %t", ctx.Err(), bounded)
				},
				BeforePause:  func(_ context.Context, queues []string) error { note("before pause %q", queues); return nil },
				AfterPause:   func(_ context.Context, queues []string, err error) { note("after pause %q %v", queues, err) },
				BeforeResume: func(_ context.Context, queues []string) error { note("before resume %q", queues); return nil },
				AfterResume:  func(_ context.Context, queues []string, err error) { note("after resume %q %v", queues, err) },
			}
		})
		if err := b.c.Pause(); !errors.Is(err, consumer.ErrNotRunning) {
			t.Errorf("a pause before Run gives %v", err)
		}
		b.run()
		if _, err := b.submit(1).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		must0(t, b.c.Pause("default"))
		must0(t, b.c.Resume())
		b.end()
		want := []string{
			"start <nil>", `before pause ["default"]`, `after pause ["default"] <nil>`, "before resume []", "after resume [] <nil>", "shutdown <nil> true",
		}
		if !slices.Equal(said, want) {
			t.Errorf("hooks said\n%q, want\n%q", said, want)
		}
	})
}

// TestProcessVetoes shows that an error or panic of a hook is returned and prevents the action.
func TestProcessVetoes(t *testing.T) {
	veto := errors.New("not now")
	for _, c := range []struct {
		name string
		veto func() error
		want error
	}{
		{"error", func() error { return veto }, veto},
		{"panic", func() error { panic("hook") }, task.ErrPanic},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(cfg *consumer.Config) {
				cfg.Hooks.BeforeStart = func(context.Context) error { return c.veto() }
				cfg.Hooks.BeforeShutdown = func(context.Context) { t.Error("shut down without a start") }
			})
			b.run()
			synctest.Wait()
			if err := b.stop(); !errors.Is(err, c.want) {
				t.Errorf("%s: Run returned %v", c.name, err)
			}
			_ = b.p.Close(t.Context())
			_ = b.store.Close(t.Context())
		})
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(cfg *consumer.Config) {
				cfg.Hooks.BeforePause = func(context.Context, []string) error { return c.veto() }
				cfg.Hooks.AfterPause = func(context.Context, []string, error) { t.Error("after a pause that was vetoed") }
				cfg.Hooks.AfterResume = func(context.Context, []string, error) { panic("logged") }
			})
			b.run()
			synctest.Wait()
			if err := b.c.Pause(); !errors.Is(err, c.want) {
				t.Errorf("%s: Pause returned %v", c.name, err)
			}
			if got, err := b.submit(3).Get(t.Context()); err != nil || got != 3 {
				t.Errorf("%s: a pause that was vetoed holds tasks: %d, %v", c.name, got, err)
			}
			must0(t, b.c.Resume())
			b.end()
		})
	}
}

// TestShutdownHookIsBounded shows that a hook that waits for its context delays a stop by
// ShutdownTimeout, and not after Kill.
func TestShutdownHookIsBounded(t *testing.T) {
	for _, kill := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(c *consumer.Config) {
				c.ShutdownTimeout = 7 * time.Second
				c.Hooks.BeforeShutdown = func(ctx context.Context) { <-ctx.Done() }
			})
			b.run()
			synctest.Wait()
			if kill {
				b.c.Kill()
			}
			begin, want := time.Now(), 7*time.Second
			b.end()
			if kill {
				want = 0
			}
			if took := time.Since(begin); took != want {
				t.Errorf("killed %t: the stop took %s, want %s", kill, took, want)
			}
		})
	}
}

// TestHooksVetoAtTheConsumer (S72) shows that a veto before dequeue prevents the handler, and a
// veto before enqueue fails a retry or a successor.
func TestHooksVetoAtTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errVeto := errors.New("not today")
		var after []string
		b := newTable(t, func(c *consumer.Config) {
			c.Hooks.Tasks.Global = []middleware.Hooks{{
				BeforeDequeue: func(_ context.Context, r *task.Request) error {
					if r.Headers["veto"] == "dequeue" {
						return errVeto
					}
					return nil
				},
				BeforeEnqueue: func(_ context.Context, _ string, e *task.Envelope) error {
					if e.Headers["veto"] == "enqueue" {
						return errVeto
					}
					return nil
				},
				AfterEnqueue: func(_ context.Context, _ string, e *task.Envelope, err error) {
					after = append(after, fmt.Sprint(e.Name, " ", e.Retries, " ", err))
				},
			}}
		})
		b.run()
		defer b.end()
		if _, err := b.submit(1, task.WithHeader("veto", "dequeue")).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "not today") || b.runs.Load() != 0 {
			t.Errorf("a veto before dequeue: %v, %d runs", err, b.runs.Load())
		}
		if _, err := b.submit(-1, task.WithHeader("veto", "enqueue")).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "not today") || b.runs.Load() != 1 {
			t.Errorf("a veto of a retry: %v, %d runs", err, b.runs.Load())
		}
		b.submit(-1, task.WithMaxRetries(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(after) != 1 || after[0] != "echo 1 <nil>" {
			t.Errorf("after enqueue: %q", after)
		}
	})
}

// TestVetoOfAnEarlyTask shows that a veto with a short delay does not start a task before its time.
// Older and foreign producers send such tasks.
func TestVetoOfAnEarlyTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vetoes := 0
		b := newTable(t, func(c *consumer.Config) {
			c.Hooks.Tasks.Global = []middleware.Hooks{{
				BeforeDequeue: func(context.Context, *task.Request) error {
					if vetoes++; vetoes == 1 {
						return task.Retry(nil, task.After(time.Second))
					}
					return nil
				},
			}}
		})
		b.run()
		defer b.end()
		synctest.Wait()
		e := &task.Envelope{ID: "early-1", Name: "echo", Args: []byte("1"), ContentType: serializer.ContentJSON}
		e.Meta.NotBefore = task.Set(time.Now().Add(time.Hour))
		m, err := serializer.JSONFormat{}.Encode(e)
		must0(t, err)
		must0(t, b.server.Connect().Publish(t.Context(), "default", m))
		time.Sleep(30 * time.Minute)
		if n := b.runs.Load(); n != 0 {
			t.Errorf("a task that is due in an hour was started %d times within half of it", n)
		}
		time.Sleep(time.Hour)
		if n := b.runs.Load(); n != 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}
