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

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestProgressEvents shows the events of the progress of tasks and of a group. A consumer with a
// Sealer leaves the note out, in the event and in the record.
func TestProgressEvents(t *testing.T) {
	ring, err := serializer.NewKeyRing(serializer.Key{ID: "k1", Secret: []byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	for name, sealer := range map[string]serializer.Sealer{"plain": nil, "sealed": ring} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				b, results, bus := membroker.New(), memresults.New(memresults.Config{}), memevents.New(memevents.Config{})
				sub, err := bus.Subscribe(ctx, events.Filter{Types: []string{events.TaskProgress, events.GroupProgress}})
				if err != nil {
					t.Fatal(err)
				}
				wire := serializer.Wire{Sealer: sealer}
				p, err := producer.New(producer.Config{Broker: b, Results: results, Wire: wire})
				if err != nil {
					t.Fatal(err)
				}
				c, err := consumer.New(consumer.Config{Broker: b, Results: results, Events: bus, Wire: wire, Queues: map[string]consumer.QueueConfig{"default": {Workers: 1}}})
				if err != nil {
					t.Fatal(err)
				}
				one, sum := task.New[int, int]("one"), task.New[[]int, int]("sum")
				if err := errors.Join(
					one.Handle(c, func(ctx context.Context, n int) (int, error) {
						if task.Progress(ctx, n, 3, "note"); n == 2 {
							synctest.Wait()
							task.Progress(ctx, 9, 3, "too soon")
							return 0, errors.New("broken")
						}
						synctest.Wait()
						return n, nil
					}),
					sum.Handle(c, func(context.Context, []int) (int, error) { return 0, nil }),
				); err != nil {
					t.Fatal(err)
				}
				running, stop := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- c.Run(running) }()
				run, err := task.Chord(task.Map(one).IgnoreFailures(), sum).Submit(ctx, p, []int{1, 2, 3}, task.WithID("w"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := run.Get(ctx); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var got []string
				for range 5 {
					e, err := sub.Receive(ctx)
					if err != nil {
						t.Fatal(err)
					}
					line := fmt.Sprintf("%s %v of %v", e.Type, e.Fields["done"], e.Fields["total"])
					if e.Type == events.TaskProgress {
						line += fmt.Sprintf(" %v", e.Fields["note"])
					} else if line += fmt.Sprintf(" failed %v", e.Fields["failed"]); e.TaskID != "w" || e.Fields["root"] != "w" {
						t.Errorf("event %+v", e)
					}
					got = append(got, line)
				}
				note := "note"
				if sealer != nil {
					note = ""
				}
				slices.Sort(got) // a task is settled beside the next one
				if diff := cmp.Diff([]string{
					"group-progress 1 of 3 failed 0", "group-progress 3 of 3 failed 1", "task-progress 1 of 3 " + note, "task-progress 2 of 3 " + note, "task-progress 3 of 3 " + note,
				}, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				groups, err := run.Groups(ctx)
				if err != nil || len(groups) != 1 || groups[0].Done != 3 || groups[0].Failed != 1 || groups[0].Total != 3 {
					t.Errorf("Groups: %+v, %v", groups, err)
				}
				failed, err := results.Load(ctx, task.Derive(groups[0].Group, "member1"))
				if p := failed.Progress; err != nil || failed.State != task.StateFailed || p.Done != 9 || (p.Note == "") != (sealer != nil) {
					t.Errorf("the failed member's record: %+v, %v", failed, err)
				}
				stop()
				if err := errors.Join(<-ended, p.Close(ctx), sub.Close(ctx), bus.Close(ctx), results.Close(ctx), b.Close(ctx)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestProgressOfAttempts shows that the event of a progress tells of which attempt it is.
func TestProgressOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, bus := t.Context(), memevents.New(memevents.Config{})
		sub, err := bus.Subscribe(ctx, events.Filter{Types: []string{events.TaskProgress}})
		if err != nil {
			t.Fatal(err)
		}
		b := newTable(t, func(c *consumer.Config) { c.Events = bus })
		twice := task.New[int, int]("twice")
		attempt := 0
		if err := twice.Handle(b.c, func(ctx context.Context, n int) (int, error) {
			attempt++
			task.Progress(ctx, attempt, 2, "")
			synctest.Wait() // the event is sent
			if attempt == 1 {
				return 0, task.Retry(nil, task.After(time.Minute))
			}
			return n, nil
		}); err != nil {
			t.Fatal(err)
		}
		b.run()
		f, err := twice.Submit(ctx, b.p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Get(ctx); err != nil {
			t.Fatal(err)
		}
		for want := 1; want <= 2; want++ {
			e, err := sub.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if info := e.Info(); e.Fields["done"] != float64(want) || info.Attempt != want || info.Generation != want-1 {
				t.Errorf("progress %v of 2 is of attempt %d and generation %d, want %d and %d", e.Fields["done"], info.Attempt, info.Generation, want, want-1)
			}
		}
		b.end()
		if err := errors.Join(sub.Close(ctx), bus.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
}
