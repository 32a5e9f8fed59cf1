package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// TestBrokenDeploy shows how an operator repairs a broken deploy, over every broker. Of many chains
// 12 fail for good at their first step, and others are retried. One query of the history finds the
// 12. A requeue by their ids repairs them, and the later steps of their chains run. Each step that
// succeeds runs once.
//
// With SWARMIJI_THOROUGH there are 10,000 chains, and 1,000,000 other records in each history.
func TestBrokenDeploy(t *testing.T) {
	rabbit, redis, nats, postgres := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t), testserver.RequirePostgres(t)
	file := "sqlite://" + t.TempDir() + "/"
	histories := map[string]history.Store{
		"SQLite": historyAt(t, file+"history.db"), "PostgreSQL": historyAt(t, postgres.URL()),
	}
	d := deploy{chains: 60, retried: 6}
	if testserver.IsThorough() {
		d.chains, d.retried = 10_000, 500
		for name, h := range histories {
			began := time.Now()
			seed(t, h, 1_000_000)
			t.Logf("seeded %s in %s", name, time.Since(began).Round(time.Second))
		}
	}
	for name, url := range map[string]string{
		"RabbitMQ": rabbit.URL(), "Redis": redis.URL(), "NATS": nats.URL(), "PostgreSQL": postgres.URL(), "SQLite": file + "app.db",
	} {
		t.Run(name, func(t *testing.T) {
			d := deploy{T: t, chains: d.chains, retried: d.retried, queue: "deploy-" + testserver.Namespace(), histories: histories}
			d.run(url)
		})
	}
}

// historyAt opens a history of its own in a database.
func historyAt(t *testing.T, url string) history.Store {
	t.Helper()
	h, err := open.History(t.Context(), url, open.HistoryOptions{Namespace: testserver.Namespace(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close the history: %v", err)
		}
	})
	return h
}

// seed writes n records of tasks that succeeded, in the last hour.
func seed(t *testing.T, h history.Store, n int) {
	t.Helper()
	const each = 5000
	now := time.Now()
	for i := 0; i < n; i += each {
		b := &history.Batch{Now: now}
		for j := i; j < min(i+each, n); j++ {
			e := events.Event{TaskID: task.ID(fmt.Sprint("seed-", j)), NodeID: "host-1", Time: now.Add(-time.Duration(j) * time.Hour / time.Duration(n)), Name: fmt.Sprint("mail.", j%20), Queue: "mails"}
			for _, typ := range []string{events.TaskReceived, events.TaskSucceeded} {
				e.Type = typ
				b.Facts = append(b.Facts, history.NewFacts(&e))
			}
		}
		if _, err := h.Record(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// broken is the number of chains that fail for good until the repair.
const broken = 12

// deploy is a system whose new version cannot run some tasks.
type deploy struct {
	*testing.T
	chains, retried int
	queue           string
	histories       map[string]history.Store

	repaired atomic.Bool
	mu       sync.Mutex
	charged  map[int]int // attempts of the first step by argument
	receipts map[int]int // runs of the last step
}

var (
	charge  = task.New[int, int]("deploy.charge", task.WithMaxRetries(3), task.WithRetryDelay(0))
	receipt = task.New[int, int]("deploy.receipt")

	errCard = errors.New("card service: no such host")
)

// fails reports whether the chain n fails for good before the repair, and retries whether its first
// attempt is retried.
func (d *deploy) fails(n int) bool { return n%(d.chains/broken) == 0 && n/(d.chains/broken) < broken }

func (d *deploy) retries(n int) bool {
	return n%(d.chains/d.retried) == 1 && n/(d.chains/d.retried) < d.retried
}

// charge is the handler of the first step.
func (d *deploy) charge(_ context.Context, n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charged[n]++
	switch {
	case d.fails(n) && !d.repaired.Load():
		return 0, fmt.Errorf("order %d: %w", n, errCard)
	case d.retries(n) && d.charged[n] == 1:
		return 0, task.Retry(errUpset)
	}
	return n, nil
}

// receipt is the handler of the last step.
func (d *deploy) receipt(_ context.Context, n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receipts[n]++
	return n, nil
}

// ended returns the number of chains whose last step has run.
func (d *deploy) ended() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.receipts)
}

func (d *deploy) run(url string) {
	d.charged, d.receipts = make(map[int]int), make(map[int]int)
	ctx, cancel := context.WithTimeout(d.Context(), 10*time.Minute)
	defer cancel()
	swarm, err := open.Open(ctx, url, open.Options{Namespace: testserver.Namespace(), Logger: quiet()})
	if err != nil {
		d.Fatal(err)
	}
	var recorders []*history.Recorder
	var all sync.WaitGroup
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		stop()
		all.Wait()
		if err := swarm.Close(context.Background()); err != nil {
			d.Errorf("close: %v", err)
		}
	}()
	work := func(what string, run func(context.Context) error) {
		all.Go(func() {
			if err := run(working); err != nil {
				d.Errorf("%s: %v", what, err)
			}
		})
	}
	for name, h := range d.histories {
		r, err := history.NewRecorder(history.RecorderConfig{Bus: swarm.Events, Store: h, MaxRecords: -1, Logger: quiet()})
		if err != nil {
			d.Fatal(err)
		}
		recorders = append(recorders, r)
		work("recorder "+name, r.Run)
	}
	c, err := swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{d.queue: {Workers: 8, Prefetch: 64}}})
	if err != nil {
		d.Fatal(err)
	}
	if err := errors.Join(charge.Handle(c, d.charge), receipt.Handle(c, d.receipt)); err != nil {
		d.Fatal(err)
	}
	p, err := swarm.Producer(producer.Config{Router: router.Static(d.queue)})
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = p.Close(context.Background()) }()
	d.listening(ctx, swarm, recorders)
	work("consumer", c.Run)

	began := time.Now()
	flow := task.Chain(charge, receipt)
	for n := range d.chains {
		if _, err := flow.Submit(ctx, p, n, task.WithIgnoreResult(true)); err != nil {
			d.Fatalf("submit: %v", err)
		}
	}
	d.awaitEnds(d.chains - broken)
	d.Logf("%d chains of two tasks in %s", d.chains, time.Since(began).Round(time.Millisecond))
	ids := d.find(ctx)
	d.repair(ctx, swarm, ids)
	d.check(ctx, recorders)
}

// listening waits until the recorders hear the bus: an event of a probe is recorded.
func (d *deploy) listening(ctx context.Context, swarm *open.Swarm, recorders []*history.Recorder) {
	d.Helper()
	probe := events.Event{Type: events.TaskSent, TaskID: task.ID("probe-" + d.queue), Time: time.Now(), Name: "probe", Queue: "probe"}
	testwait.Until(d, "the recorders hear the bus", func() bool {
		if err := swarm.Events.Publish(ctx, probe); err != nil {
			d.Fatalf("publish: %v", err)
		}
		return !slices.ContainsFunc(recorders, func(r *history.Recorder) bool { return r.Stats().Recorded == 0 })
	})
}

// awaitEnds waits until this many chains have ended, as long as further ones end.
func (d *deploy) awaitEnds(want int) {
	d.Helper()
	for n := d.ended(); n < want; n = d.ended() {
		testwait.Until(d, fmt.Sprintf("more than %d of %d chains end", n, want), func() bool { return d.ended() > n })
	}
}

// find finds the tasks that failed for good in each history, by one query, and returns their ids.
func (d *deploy) find(ctx context.Context) (ids []task.ID) {
	query := "state:dead name:deploy.* error~\"no such host\" since:1h queue:" + d.queue
	for name, h := range d.histories {
		api, err := inspect.New(inspect.Config{History: h, Logger: quiet()})
		if err != nil {
			d.Fatal(err)
		}
		var page inspect.TaskPage
		testwait.Until(d, "the history in "+name+" has the failed tasks", func() bool {
			if page, err = api.ListTasks(ctx, inspect.TaskQuery{Query: query}); err != nil {
				d.Fatal(err)
			}
			return len(page.Tasks) >= broken
		})
		times := make([]time.Duration, 21)
		for i := range times {
			began := time.Now()
			if page, err = api.ListTasks(ctx, inspect.TaskQuery{Query: query}); err != nil {
				d.Fatal(err)
			}
			times[i] = time.Since(began)
		}
		slices.Sort(times)
		d.Logf("%d tasks found in %s: median %s, longest %s", len(page.Tasks), name, times[len(times)/2].Round(10*time.Microsecond), times[len(times)-1].Round(10*time.Microsecond))
		// one page, whose work is bounded
		if len(page.Tasks) != broken || !page.Complete || page.Next != "" {
			d.Errorf("%s: %d tasks, complete %v, next %q", name, len(page.Tasks), page.Complete, page.Next)
		}
		ids = nil
		for i := range page.Tasks {
			ids = append(ids, page.Tasks[i].ID)
		}
	}
	return ids
}

// repair requeues the dead letters of these tasks after the fix, and waits for the ends of all
// chains.
func (d *deploy) repair(ctx context.Context, swarm *open.Swarm, ids []task.ID) {
	api, err := open.Inspector(swarm, inspect.Config{})
	if err != nil {
		d.Fatal(err)
	}
	these := inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: d.queue, IDs: ids}, DryRun: true}
	if c, err := api.RequeueDead(ctx, these); err != nil || c.Done != broken {
		d.Fatalf("the dry run: %+v, %v", c, err)
	}
	d.repaired.Store(true)
	these.DryRun = false
	if c, err := api.RequeueDead(ctx, these); err != nil || c.Done != broken || c.Refused > 0 {
		d.Fatalf("requeue: %+v, %v", c, err)
	}
	d.awaitEnds(d.chains)
	if s, err := api.SummarizeDead(ctx, inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: d.queue}}); err != nil || s.N != 0 {
		d.Errorf("dead letters after the repair: %+v, %v", s, err)
	}
}

// check checks the attempts of all steps, and that the histories know of the repair.
func (d *deploy) check(ctx context.Context, recorders []*history.Recorder) {
	d.mu.Lock()
	for n := range d.chains {
		want := 1
		if d.fails(n) || d.retries(n) {
			want = 2
		}
		if d.charged[n] != want || d.receipts[n] != 1 {
			d.Errorf("chain %d: %d attempts of its first step, want %d; its last step ran %d times", n, d.charged[n], want, d.receipts[n])
		}
	}
	d.mu.Unlock()
	for _, r := range recorders {
		if s := r.Stats(); s.Dropped > 0 {
			d.Logf("a recorder has dropped %d events and recorded %d; the last counts are not compared", s.Dropped, s.Recorded)
			return
		}
	}
	for name, h := range d.histories {
		for query, want := range map[string]int{
			"state:dead":                          0,
			"name:deploy.charge state:succeeded":  d.chains,
			"name:deploy.receipt state:succeeded": d.chains,
			"name:deploy.charge attempts:2":       d.retried,
		} {
			// of indexes with many entries the first one is examined
			q, err := history.Parse("queue:" + d.queue + " " + query)
			if err != nil {
				d.Fatal(err)
			}
			testwait.UntilNil(d, name+": "+query, func() error {
				n, err := h.Count(ctx, q)
				if err == nil && (n.N != want || n.AtLeast) {
					err = fmt.Errorf("%+v, want %d", n, want)
				}
				return err
			})
		}
	}
}
