package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// servers returns the URLs of the brokers of a run.
func servers(t *testing.T) map[string]func(t *testing.T) string {
	t.Helper()
	all := map[string]func(t *testing.T) string{"sqlite": sqlite}
	if testserver.IsThorough() {
		all["redis"] = func(t *testing.T) string { return testserver.RequireRedis(t).URL() }
		all["rabbitmq"] = func(t *testing.T) string { return testserver.RequireRabbit(t).URL() }
	}
	return all
}

// sqlite returns the URL of a new file.
func sqlite(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") }

// node is the consumer.
const node = "worker-1"

// The queues. No consumer serves spareQueue.
const (
	ordersQueue  = "orders"
	mailQueue    = "mail"
	reportsQueue = "reports"
	statsQueue   = "stats"
	spareQueue   = "spare"
)

type (
	order struct {
		Order    int64  `json:"order"`
		Customer string `json:"customer"`
	}
	letter struct {
		To string `json:"to"`
	}
	report struct {
		Month string `json:"month"`
		Rows  int    `json:"rows"`
	}
)

// The tasks.
var (
	chargeTask  = task.New[order, string]("shop.charge", task.WithQueue(ordersQueue), task.WithMaxRetries(0))
	welcomeTask = task.New[letter, string]("mail.welcome", task.WithQueue(mailQueue), task.WithMaxRetries(0))
	invoiceTask = task.New[letter, string]("mail.invoice", task.WithQueue(mailQueue), task.WithMaxRetries(0))
	// it waits until it is cancelled or the world ends
	reportTask = task.New[report, string]("report.build", task.WithQueue(reportsQueue))
	addTask    = task.New[int, int]("stats.add", task.WithQueue(statsQueue))
	spareTask  = task.New[int, int]("spare.wait", task.WithQueue(spareQueue))
	// the steps of workflows
	fetchTask = task.New[string, string]("site.fetch", task.WithQueue(statsQueue), task.WithMaxRetries(0))
	buildTask = task.New[string, string]("site.build", task.WithQueue(reportsQueue), task.WithMaxRetries(0))
)

// world is a system with a consumer, a schedule, jobs, a history and a dashboard.
type world struct {
	*testing.T
	swarm    *open.Swarm
	producer *producer.Producer
	consumer *consumer.Consumer
	schedule *schedule.Schedule
	jobs     *jobs.Service
	history  open.HistoryStore
	api      *inspect.Local
	base     string // URL of a dashboard whose callers may do all

	*switches
}

// switches say whether the tasks succeed.
type switches struct{ charging, mailing, fetching atomic.Bool }

// quiet is the logger of all parts. The tests look at the pages alone.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newWorld starts a system over the broker of a URL. It ends with the test.
func newWorld(t *testing.T, url string) *world {
	t.Helper()
	w := startWorld(t, url)
	w.inspect()
	w.base = w.serve(dashboard.Config{}, "/", nil)
	return w
}

// startWorld starts a system without an API and a dashboard.
func startWorld(t *testing.T, url string) *world {
	t.Helper()
	w := &world{T: t, switches: new(switches)}
	options := open.Options{Control: true, Namespace: testserver.Namespace(), Logger: quiet()}
	if strings.HasPrefix(url, "amqp") {
		options.Results = sqlite(t) // reply queues keep no records of workflows
	}
	var err error
	w.swarm, err = open.Open(t.Context(), url, options)
	w.no(err)
	t.Cleanup(func() { w.closed("swarm", w.swarm.Close) })
	w.history, err = open.History(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "history.db"), open.HistoryOptions{Logger: quiet()})
	w.no(err)
	t.Cleanup(func() { w.closed("history", w.history.Close) })
	w.no(w.history.Prepare(testwait.Long(t)))
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: w.swarm.Events, Store: w.history, Logger: quiet()})
	w.no(err)
	w.run("recorder", recorder.Run)
	store, err := memjobs.New(memjobs.Config{})
	w.no(err)
	t.Cleanup(func() { w.closed("store of jobs", store.Close) })
	w.jobs, err = jobs.New(jobs.Config{Store: store, Logger: quiet()})
	w.no(err)
	t.Cleanup(func() { w.closed("jobs", w.jobs.Close) })
	w.producer, err = w.swarm.Producer(producer.Config{
		Report: events.Report{NodeID: "shop-1", Payloads: true}, Queues: []broker.Queue{{Name: spareQueue}}, Logger: quiet(),
	})
	w.no(err)
	t.Cleanup(func() { w.closed("producer", w.producer.Close) })
	w.plan()
	w.consume()
	return w
}

// inspect starts the API of the system.
func (w *world) inspect() {
	w.Helper()
	commands, err := control.NewClient(control.ClientConfig{Bus: w.swarm.Control, Replies: w.swarm.Replies})
	w.no(err)
	w.api, err = open.Inspector(w.swarm, inspect.Config{
		Control: commands, History: w.history, Schedule: w.schedule, Jobs: w.jobs, Actor: "ada", Logger: quiet(), Queues: []string{spareQueue},
	})
	w.no(err)
	w.run("api", w.api.Run)
	w.until("the consumer answers", func() bool {
		one, err := w.api.GetWorker(w.ctx(), node)
		return err == nil && one.Answers && w.consumer.Stats().Running
	})
}

// plan makes the schedule and runs its entries.
func (w *world) plan() {
	w.Helper()
	store, err := memschedule.New(memschedule.Config{Name: "shop"})
	w.no(err)
	w.Cleanup(func() { w.closed("store of the schedule", store.Close) })
	w.schedule, err = schedule.New(schedule.Config{Store: store})
	w.no(err)
	listener, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Submit: w.producer, Logger: quiet()})
	w.no(err)
	w.no(schedule.Forward(listener, addTask))
	w.run("listener", listener.Run)
}

// consume runs the consumer.
func (w *world) consume() {
	w.Helper()
	queue := consumer.QueueConfig{Workers: 2}
	c, err := w.swarm.Consumer(consumer.Config{
		Report: events.Report{NodeID: node, HeartbeatEvery: 500 * time.Millisecond, Payloads: true}, Control: &control.Config{Logger: quiet()},
		Queues: map[string]consumer.QueueConfig{ordersQueue: queue, mailQueue: queue, reportsQueue: {Workers: 8}, statsQueue: queue},
		Logger: quiet(), ShutdownTimeout: -1,
	})
	w.no(err)
	mail := func(_ context.Context, l letter) (string, error) {
		if !w.mailing.Load() {
			return "", fmt.Errorf("smtp: 451 mailbox %q is locked, try again later", l.To)
		}
		return "sent to " + l.To, nil
	}
	w.no(errors.Join(
		chargeTask.Handle(c, func(_ context.Context, o order) (string, error) {
			if !w.charging.Load() {
				return "", fmt.Errorf("order %d: the card was declined", o.Order)
			}
			return "charged", nil
		}),
		welcomeTask.Handle(c, mail),
		invoiceTask.Handle(c, mail),
		reportTask.Handle(c, func(ctx context.Context, r report) (string, error) {
			task.Progress(ctx, 2*r.Rows/5, r.Rows, "reading the orders of "+r.Month)
			<-ctx.Done()
			return "", context.Cause(ctx)
		}),
		addTask.Handle(c, func(_ context.Context, n int) (int, error) { return n + 1, nil }),
		fetchTask.Handle(c, func(_ context.Context, site string) (string, error) {
			if !w.fetching.Load() {
				return "", task.Fail(fmt.Errorf("%s: no such host", site))
			}
			return site + "/index", nil
		}),
		buildTask.Handle(c, func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}),
	))
	w.consumer = c
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.Cleanup(func() { cancel(); <-ended }) // with ShutdownTimeout -1 running tasks make it an error
}

// run runs a function until the test ends.
func (w *world) run(what string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.Errorf("%s: %v", what, err)
		}
	})
}

func (w *world) no(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) closed(what string, f func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := f(ctx); err != nil {
		w.Errorf("closing the %s: %v", what, err)
	}
}

func (w *world) ctx() context.Context { return testwait.Long(w.T) }

// until waits for a condition of the system.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	var last time.Time
	testwait.Until(w.T, what, func() bool {
		if time.Since(last) < 100*time.Millisecond {
			return false
		}
		last = time.Now()
		return ok()
	})
}

// untilState waits until tasks are in a state. The history may learn of it later: see
// untilRecorded.
func (w *world) untilState(state inspect.State, ids ...task.ID) {
	w.Helper()
	for _, id := range ids {
		last := inspect.State("not known")
		w.Cleanup(func() {
			if w.Failed() && last != state {
				w.Logf("task %s is %s", id, last)
			}
		})
		w.until(fmt.Sprintf("task %s is %s", id, state), func() bool {
			d, err := w.api.GetTask(w.ctx(), inspect.TaskKey{ID: id})
			if err == nil {
				last = d.State
			}
			return err == nil && d.State == state
		})
	}
}

// submit submits a task and returns its id.
func submit[A, R any](w *world, t task.Task[A, R], args A, opts ...task.Option) task.ID {
	w.Helper()
	f, err := t.Submit(w.ctx(), w.producer, args, opts...)
	w.no(err)
	return f.ID()
}

// untilRecorded waits until the history has the end of a task, and so its arguments and its times.
func (w *world) untilRecorded(id task.ID) {
	w.Helper()
	w.until("the end of "+string(id)+" is recorded", func() bool {
		r, err := w.history.Get(w.ctx(), id)
		return err == nil && !r.Ended.IsZero()
	})
}

// dead submits tasks and waits until the history has their failures.
func dead[A, R any](w *world, t task.Task[A, R], args ...A) (ids []task.ID) {
	w.Helper()
	for _, a := range args {
		ids = append(ids, submit(w, t, a))
	}
	for _, id := range ids {
		w.until("the failure of "+string(id)+" is recorded", func() bool {
			r, err := w.history.Get(w.ctx(), id)
			return err == nil && r.State == history.State(task.StateFailed) && r.DeadLetter
		})
	}
	return ids
}

// serve serves a dashboard of the system below a path that begins and ends with a slash, and
// returns its URL. gate may hold up its streams.
func (w *world) serve(c dashboard.Config, prefix string, g *gate) string {
	w.Helper()
	return w.around(c, func(h http.Handler) http.Handler {
		if g != nil {
			h = g.around(h)
		}
		return http.StripPrefix(prefix[:len(prefix)-1], h)
	}) + prefix
}

// around serves a dashboard of the system behind another handler, and returns its URL without a
// slash at its end.
func (w *world) around(c dashboard.Config, wrap func(h http.Handler) http.Handler) string {
	w.Helper()
	if c.API == nil {
		c.API = w.api
	}
	c.Logger, c.Version = quiet(), "v1.0.0"
	d, err := dashboard.New(c)
	w.no(err)
	s := httptest.NewServer(wrap(d))
	w.Cleanup(func() {
		w.closed("dashboard", d.Close)
		s.Close()
	})
	return s.URL
}

// gate counts the streams of a dashboard and can interrupt them. The zero value is open.
type gate struct {
	mu     sync.Mutex
	open   map[*context.CancelFunc]string // the open streams with their queries
	seen   []string                       // the queries of all streams that came
	closed chan struct{}                  // closed when the gate opens; nil: it is open
}

func (g *gate) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live" {
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		g.mu.Lock()
		closed := g.closed
		g.seen = append(g.seen, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
		g.mu.Unlock()
		if closed != nil {
			select {
			case <-closed:
			case <-ctx.Done():
				return
			}
		}
		g.mu.Lock()
		if g.open == nil {
			g.open = make(map[*context.CancelFunc]string)
		}
		g.open[&cancel] = r.URL.RawQuery
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.open, &cancel)
		}()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// cut ends all streams, and holds up new ones until the returned function is called.
func (g *gate) cut() (again func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
	for cancel := range g.open {
		(*cancel)()
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.closed)
		g.closed = nil
	}
}

// streams returns the number of open streams.
func (g *gate) streams() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open)
}

// last returns the query and the Last-Event-ID of the last stream that came.
func (g *gate) last() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) == 0 {
		return ""
	}
	return g.seen[len(g.seen)-1]
}
