package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

var quiet = slog.New(slog.DiscardHandler)

// lane is a broker, a result store and a store of jobs that are used together.
type lane struct {
	*testing.T
	broker  broker.Broker
	results resultstore.ResultStore
	store   jobs.Store
	release chan struct{} // closed when the task single may end
}

// lanes are the combinations with which tasks with conditions are tested: every broker, every store
// of jobs, and results beside the broker or beside the jobs.
var lanes = map[string]func(*testing.T) *lane{
	"memory": func(t *testing.T) *lane {
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return newLane(t, membroker.New(), memresults.New(memresults.Config{}), store)
	},
	"rabbit with sqlite": func(t *testing.T) *lane {
		url := "sqlite://" + filepath.Join(t.TempDir(), "jobs.db")
		return openLane(t, testserver.RequireRabbit(t).URL(), url, url)
	},
	"nats with sqlite": func(t *testing.T) *lane {
		return openLane(t, testserver.RequireNATS(t).URL(), "", "sqlite://"+filepath.Join(t.TempDir(), "jobs.db"))
	},
	"redis with postgres": func(t *testing.T) *lane {
		database, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
		if err != nil {
			t.Fatal(err)
		}
		return openLane(t, testserver.RequireRedis(t).URL(), "", database)
	},
}

func newLane(t *testing.T, b broker.Broker, results resultstore.ResultStore, store jobs.Store) *lane {
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(b.Close(ctx), results.Close(ctx), store.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &lane{t, b, results, store, make(chan struct{})}
}

func openLane(t *testing.T, url, results, store string) *lane {
	t.Helper()
	return openLaneIn(t, testserver.Namespace(), url, results, store)
}

func openLaneIn(t *testing.T, namespace, url, results, store string) *lane {
	t.Helper()
	swarm, err := open.Open(t.Context(), url, open.Options{Results: results, Namespace: namespace, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, store)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := swarm.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newLane(t, swarm.Broker, swarm.Results, kept)
}

// service returns another service over the jobs.
func (l *lane) service() *jobs.Service {
	l.Helper()
	s, err := jobs.New(jobs.Config{Store: l.store, Logger: quiet})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			l.Error(err)
		}
	})
	return s
}

func (l *lane) producer() *producer.Producer {
	l.Helper()
	p, err := producer.New(producer.Config{Broker: l.broker, Results: l.results, Jobs: l.service(), Logger: quiet})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			l.Error(err)
		}
	})
	return p
}

// during runs a function until stop is called or the test ends.
func (l *lane) during(run func(context.Context) error) (stop func()) {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(stop)
	return stop
}

// consume runs another consumer.
func (l *lane) consume(workers int, handle func(*consumer.Consumer) error) {
	l.Helper()
	s := l.service()
	c, err := consumer.New(consumer.Config{
		Broker: l.broker, Results: l.results, Jobs: s, Middleware: []middleware.Middleware{runner.Current(s)}, Logger: quiet,
		Queues: map[string]consumer.QueueConfig{"default": {Workers: workers}},
	})
	if err != nil {
		l.Fatal(err)
	}
	if err := handle(c); err != nil {
		l.Fatal(err)
	}
	l.during(c.Run)
}

// dispatch runs another runner of a queue of jobs.
func (l *lane) dispatch(q queue.Queue) (stop func()) {
	l.Helper()
	r, err := runner.New(runner.Config{
		Service: l.service(), Queue: &q, Submit: l.producer(), Results: l.results, Lease: 3 * time.Second, Sweep: 200 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		l.Fatal(err)
	}
	return l.during(r.Run)
}

// load is the argument of the test's tasks, from which their handlers check the conditions.
type load struct {
	From, Number int // submitter of the task, and its number there
	Key          string
	Weight       int // thousandths
}

// scale records which tasks run and have run, for the checks of the handlers.
type scale struct {
	mu       sync.Mutex
	limit    int
	weight   int
	count    int // running tasks with a weight
	keys     map[string]bool
	last     map[string]int // number of the last task that ran, by key and submitter
	runs     map[task.ID]int
	wrong    []string
	heaviest int
}

func newScale(limit int) *scale {
	return &scale{limit: limit, keys: map[string]bool{}, last: map[string]int{}, runs: map[task.ID]int{}}
}

// weigh is the handler.
func (s *scale) weigh(ctx context.Context, at load) (int, error) {
	r, _ := task.FromContext(ctx)
	s.mu.Lock()
	line := fmt.Sprint(at.Key, " of ", at.From)
	if s.runs[r.ID]++; s.runs[r.ID] > 1 { // delivered again; the test counts the runs
		s.mu.Unlock()
		return at.Number, nil
	}
	s.weight += at.Weight
	if at.Weight > 0 {
		s.count++
	}
	s.heaviest = max(s.heaviest, s.weight)
	switch {
	case at.Key != "" && s.keys[at.Key]:
		s.wrong = append(s.wrong, fmt.Sprintf("two of key %s run", at.Key))
	case at.Key != "" && s.last[line] >= at.Number:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %d runs after %d", line, at.Number, s.last[line]))
	case s.weight > s.limit && s.count > 1:
		s.wrong = append(s.wrong, fmt.Sprintf("%d tasks weigh %d together", s.count, s.weight))
	}
	s.keys[at.Key], s.last[line] = true, at.Number
	s.mu.Unlock()
	<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weight -= at.Weight
	if at.Weight > 0 {
		s.count--
	}
	delete(s.keys, at.Key)
	return at.Number, nil
}

// judge fails the test for each broken condition, and returns how often tasks ran again.
func (s *scale) judge(t *testing.T, tasks int) (again int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) > 0 || len(s.runs) != tasks || s.heaviest < s.limit/2 {
		t.Errorf("%d of %d tasks ran, at most %d thousandths at a time; %q", len(s.runs), tasks, s.heaviest, s.wrong)
	}
	for _, n := range s.runs {
		again += n - 1
	}
	return again
}

// fill submits from several producers at once, and waits for the ends of all tasks.
func (l *lane) fill(producers, each int, after func(from, i int)) {
	l.Helper()
	var submitting sync.WaitGroup
	for from := range producers {
		p := l.producer()
		submitting.Go(func() {
			var futures []*task.Future[int]
			for i := range each {
				at := load{From: from, Number: i + 1, Weight: 1000}
				opts := []task.Option{}
				switch i % 4 {
				case 0:
					at.Key = "of all"
				case 1:
					at.Key = fmt.Sprint("own ", from)
				default:
					at.Weight = []int{0, 500, 1500, 4000, 6000}[rand.IntN(5)]
				}
				if at.Key != "" {
					opts = append(opts, task.WithSequenceKey(at.Key))
				}
				opts = append(opts, task.WithWeight(float64(at.Weight)/1000))
				f, err := weighed.Submit(l.Context(), p, at, opts...)
				if err != nil {
					l.Error(err)
					return
				}
				futures = append(futures, f)
				after(from, i)
			}
			for i, f := range futures {
				if got, err := get(l, f); err != nil || got != i+1 {
					l.Errorf("future %d of %d: %d, %v", i+1, from, got, err)
				}
			}
		})
	}
	submitting.Wait()
}

var (
	weighed = task.New[load, int]("weighed", task.WithThrottle("scale"))
	single  = task.New[int, int]("single", task.WithThrottle("scale"), task.WithUniqueKey("k"), task.WithWeight(0))
)

// unique checks that a key is refused until its task has ended, and is free after the job was told
// of the end.
func (l *lane) unique() {
	l.Helper()
	p := l.producer()
	submit := func() (*task.Future[int], error) { return single.Submit(l.Context(), p, 1) }
	first, err := submit()
	if err != nil {
		l.Fatal(err)
	}
	if _, err := submit(); !errors.Is(err, jobs.ErrKeyTaken) {
		l.Errorf("a second task of a unique key: %v", err)
	}
	close(l.release)
	if _, err := get(l, first); err != nil {
		l.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		again, err := submit()
		if err == nil {
			_, err = get(l, again)
			if err != nil {
				l.Error(err)
			}
			return
		}
		if !errors.Is(err, jobs.ErrKeyTaken) || time.Now().After(deadline) {
			l.Fatalf("when the first task was over: %v", err)
		}
	}
}

// closed submits a task whose windows are closed. check fails the test if it was sent.
func (l *lane) closed() (check func()) {
	l.Helper()
	p, s := l.producer(), l.service()
	day := time.Now().UTC().AddDate(0, 0, 3).Weekday()
	f, err := weighed.Submit(l.Context(), p, load{Number: 1}, task.WithWindows(fmt.Sprintf("%s 03:00-04:00", day)))
	if err != nil {
		l.Fatal(err)
	}
	return func() {
		l.Helper()
		found, err := s.List(l.Context(), jobs.Filter{Name: weighed.Name(), Key: jobs.KeyOfTask(f.ID())})
		if err != nil || len(found) != 1 || found[0].State != jobs.Queued || found[0].Attempt != 0 || found[0].NextRun.UTC().Weekday() != day {
			l.Errorf("the job of a task outside of its windows: %+v, %v", found, err)
		}
	}
}

// TestConditionsHold shows that tasks with conditions run once each as their conditions say, over
// every broker. Several producers, consumers and runners work, and one runner stops. The futures
// work as usual.
func TestConditionsHold(t *testing.T) {
	for name, build := range lanes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := build(t)
			const limit, producers, each = 4000, 3, 12
			s := newScale(limit)
			for range 2 {
				l.consume(4, func(c *consumer.Consumer) error {
					return errors.Join(weighed.Handle(c, s.weigh), single.Handle(c, func(_ context.Context, n int) (int, error) { <-l.release; return n, nil }))
				})
			}
			q := queue.Queue{Name: "scale", Limit: limit / 1000}
			stop := l.dispatch(q)
			l.dispatch(q)
			closed := l.closed()
			l.unique()
			l.fill(producers, each, func(from, i int) {
				if i == each/2 && from == 0 {
					stop() // the other one continues
				}
			})
			if again := s.judge(t, producers*each); again > 0 {
				t.Errorf("%d tasks ran again", again)
			}
			closed()
		})
	}
}

// TestWithdrawnTaskEnds shows that the future of a task with conditions ends when its job is
// withdrawn. That holds before the task is sent and while it waits in the broker.
func TestWithdrawnTaskEnds(t *testing.T) {
	for name, build := range lanes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := build(t)
			p, s := l.producer(), l.service()
			submit := func() (*task.Future[int], jobs.ID) {
				f, err := weighed.Submit(t.Context(), p, load{Number: 1})
				if err != nil {
					t.Fatal(err)
				}
				found, err := s.List(t.Context(), jobs.Filter{Name: weighed.Name(), Key: jobs.KeyOfTask(f.ID())})
				if err != nil || len(found) != 1 {
					t.Fatalf("%d jobs, %v", len(found), err)
				}
				return f, found[0].ID
			}
			sent, id := submit()
			kept, other := submit()
			l.dispatch(queue.Queue{Name: "scale", Limit: 1})
			testwait.UntilNil(t, "the first task is sent", func() error {
				j, err := s.Query(t.Context(), id)
				if err == nil && j.State != jobs.Running {
					err = fmt.Errorf("its job is %s", j.State)
				}
				return err
			})
			for _, w := range []jobs.ID{other, id} {
				if err := s.Withdraw(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			for what, f := range map[string]*task.Future[int]{"was sent": sent, "was not sent": kept} {
				if _, err := f.Get(testwait.Long(t)); !errors.Is(err, task.ErrRevoked) {
					t.Errorf("the future of a task that %s: %v", what, err)
				}
			}
		})
	}
}
