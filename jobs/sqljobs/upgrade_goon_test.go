package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestUpgradedJobsGoOn shows through the public API that the jobs of every old version continue
// after the upgrade. The tasks with conditions are sent in their order.
func TestUpgradedJobsGoOn(t *testing.T) {
	for _, version := range []int{1, 2, 3} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			each(t, func(t *testing.T, dsn string) {
				s, err := jobs.New(jobs.Config{Store: upgrade(t, dsn, version), Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				u := upgraded{t, s}
				u.jobsGoOn()
				if version > 1 {
					u.tasksGoOn()
				}
				if err := s.Close(bound(t)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// upgraded is a service over a database that an old version has filled.
type upgraded struct {
	*testing.T
	s *jobs.Service
}

// take claims the only due job of a name. The last rows of the fixture are one second younger than
// the first.
func (u upgraded) take(name string, id jobs.ID) jobs.Handout {
	u.Helper()
	got, err := u.s.Get(bound(u.T), jobs.Request{Max: 9, Selector: jobstore.Selector{Names: []string{name}}, Lease: time.Hour, Wait: true})
	if err != nil || len(got) != 1 || got[0].ID != id {
		u.Fatalf("%s: handed out are %+v, %v; want job %d", name, got, err, id)
	}
	return got[0]
}

// finish ends an attempt and checks that the job is then in the state want. An empty state means
// that the job is deleted.
func (u upgraded) finish(id jobs.ID, token int64, want jobs.State) {
	u.Helper()
	if err := u.s.Finish(bound(u.T), jobs.Finish{ID: id, Token: token}); err != nil {
		u.Fatalf("job %d: %v", id, err)
	}
	u.in(id, want)
}

func (u upgraded) in(id jobs.ID, want jobs.State) {
	u.Helper()
	j, err := u.s.Query(bound(u.T), id)
	if errors.Is(err, jobs.ErrNotFound) && want == "" {
		return
	}
	if err != nil || j.State != want {
		u.Errorf("job %d is %s, %v; want %q", id, j.State, err, want)
	}
}

func (u upgraded) jobsGoOn() {
	u.Helper()
	// "postponed" is due a second after the fixture was written, so it is taken below
	for _, name := range []string{"later", "again", "leased", "endless", "parent", "second", "overdue"} {
		got, err := u.s.Get(bound(u.T), jobs.Request{Max: 9, Selector: jobstore.Selector{Names: []string{name}}, Lease: time.Hour})
		if !errors.Is(err, jobs.ErrNoJob) {
			u.Errorf("%s is not due, and handed out are %+v, %v", name, got, err)
		}
	}
	u.finish(1, u.take("queued", 1).Token, "")
	u.finish(37, u.take("postponed", 37).Token, "")
	h := u.take("repeats", 3)
	u.finish(3, h.Token, jobs.Queued)
	if j, err := u.s.Query(bound(u.T), 3); err != nil || time.Until(j.NextRun) < 50*time.Minute {
		u.Errorf("job 3 repeats at %v, %v", j.NextRun, err)
	}
	// Running attempts continue with the token that the old version assigned.
	u.finish(4, 1, "")
	u.finish(5, 1, "")
	u.finish(6, 1, "")
	if h := u.take("thirdtry", 38); h.Attempt != 3 && h.Attempt != 4 {
		u.Errorf("the lease of job 38 has ended; this is attempt %d", h.Attempt)
	}
	u.in(11, jobs.Waiting)
	u.finish(10, u.take("first", 10).Token, "")
	u.finish(11, u.take("second", 11).Token, "")
	u.in(7, jobs.Paused)
	u.finish(8, u.take("child", 8).Token, jobs.Finished)
	u.finish(7, u.take("parent", 7).Token, "")
	u.in(12, jobs.Failed)
	if err := u.s.Requeue(bound(u.T), []jobs.ID{12}, ""); err != nil {
		u.Error(err)
	}
	u.finish(12, u.take("failed", 12).Token, "")
}

// tasksGoOn runs a runner that sends the tasks with conditions. The second task waits for the end
// of the first.
func (u upgraded) tasksGoOn() {
	u.Helper()
	ctx, cancel := context.WithCancel(bound(u.T))
	defer cancel()
	server, results := membroker.NewServer(membroker.Config{}), memresults.New(memresults.Config{})
	b := server.Connect()
	if err := server.Connect().Declare(ctx, broker.Queue{Name: "q"}); err != nil {
		u.Fatal(err)
	}
	p, err := producer.New(producer.Config{Broker: b, Results: results, Jobs: u.s})
	if err != nil {
		u.Fatal(err)
	}
	r, err := runner.New(runner.Config{
		Service: u.s, Submit: p, Results: results, Queue: &queue.Queue{Name: "tasks"}, Sweep: 100 * time.Millisecond,
	})
	if err != nil {
		u.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	sub, err := server.Connect().Subscribe(ctx, "q", broker.SubscribeOptions{Prefetch: 9})
	if err != nil {
		u.Fatal(err)
	}
	for i, id := range []jobs.ID{19, 20} {
		d, err := sub.Receive(ctx)
		if err != nil || d.Message().ID != fmt.Sprint("c", i+1) {
			u.Fatalf("received %+v, %v", d, err)
		}
		u.in(id, jobs.Running)
		if id == 19 {
			u.in(20, jobs.Waiting)
		}
		if err := d.Ack(ctx); err != nil {
			u.Fatal(err)
		}
		if err := results.Save(ctx, resultstore.Record{ID: task.ID(d.Message().ID), State: task.StateSucceeded}); err != nil {
			u.Fatal(err)
		}
	}
	testwait.Until(u.T, "the second task's job is finished", func() bool {
		j, err := u.s.Query(ctx, 20)
		if err != nil && !errors.Is(err, jobs.ErrNotFound) || ctx.Err() != nil {
			u.Fatalf("the second task's job is %s, %v", j.State, err)
		}
		return j.State == jobs.Finished
	})
	cancel()
	if err := <-ran; err != nil {
		u.Error(err)
	}
	done, end := context.WithTimeout(context.Background(), 2*time.Minute)
	defer end()
	if err := errors.Join(sub.Close(done), p.Close(done), results.Close(done)); err != nil {
		u.Error(err)
	}
}
