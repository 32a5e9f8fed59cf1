package celery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/celery/internal/python"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// world has a producer and a worker in Python and in Go, over one broker and one result backend.
type world struct {
	py      *python.Producer
	worker  *python.Worker
	swarm   *celery.Swarm
	p       *producer.Producer
	goQueue string
	pyQueue string
	broker  string

	mu    sync.Mutex
	calls map[task.ID][]call
	heard chan struct{} // closed and replaced at each call

	stop  context.CancelFunc
	ended chan error
	dir   string
}

// call is one run of a Go handler.
type call struct {
	request task.Request
	args    any
	at      time.Time
}

// lazyWorld is a world that the first test starts. The result backend is that of results.
type lazyWorld struct {
	results func(tb testing.TB) string
	mu      sync.Mutex
	world   *world
	failed  bool
}

var (
	overRedis = &lazyWorld{results: func(tb testing.TB) string {
		_, server, _ := strings.Cut(testserver.RequireRedis(tb).URL(), "@")
		// as Celery's users write it
		return "redis://:" + testserver.RequireRedis(tb).Password() + "@" + server
	}}
	overRPC = &lazyWorld{results: func(testing.TB) string { return "rpc://" }}
)

// get returns the world. It fails the test if the start of the world has failed.
func (l *lazyWorld) get(tb testing.TB) *world {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.world == nil {
		if l.failed {
			tb.Fatal("the Python processes have not started, see an earlier test")
		}
		l.failed = true
		l.world = newWorld(tb, l.results(tb))
	}
	return l.world
}

func (l *lazyWorld) close() {
	if w := l.world; w != nil {
		w.close()
	}
}

// newWorld starts a world.
func newWorld(tb testing.TB, results string) *world {
	tb.Helper()
	testserver.RequirePython(tb)
	rabbit := testserver.RequireRabbit(tb)
	name := testserver.Namespace()
	w := &world{
		goQueue: name + ".go", pyQueue: name + ".py", broker: rabbit.URL(), calls: make(map[task.ID][]call), heard: make(chan struct{}), ended: make(chan error, 1),
	}
	var err error
	if w.dir, err = os.MkdirTemp("", "swarmiji-celery-"); err != nil {
		tb.Fatal(err)
	}
	w.swarm, err = celery.Open(tb.Context(), w.broker, celery.Options{
		Results: results, Queue: w.goQueue, TrackStarted: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	if w.p, err = w.swarm.Producer(producer.Config{}); err != nil {
		tb.Fatal(err)
	}
	c, err := w.swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{w.goQueue: {Workers: 8}}})
	if err == nil {
		err = w.handle(c)
	}
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	go func() { w.ended <- c.Run(ctx) }()
	conf := python.Config{Broker: strings.Replace(w.broker, "amqp://", "pyamqp://", 1), Results: results, Queue: w.pyQueue, Node: "py@" + name}
	w.worker = python.StartWorker(tb, w.dir, conf)
	w.py = python.StartProducer(tb, w.dir, conf)
	return w
}

// close ends the processes and removes the files.
func (w *world) close() {
	w.py.Close()
	w.worker.Close()
	w.stop()
	err := <-w.ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err = errors.Join(err, w.p.Close(ctx), w.swarm.Close(ctx), os.RemoveAll(w.dir)); err != nil {
		fmt.Fprintln(os.Stderr, "the end of the tests with Python:", err)
	}
}

// note records a run of the handler of ctx with these arguments.
func (w *world) note(ctx context.Context, args any) *task.Request {
	r, ok := task.FromContext(ctx)
	if !ok {
		panic("not the context of a handler")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[r.ID] = append(w.calls[r.ID], call{*r, args, time.Now()})
	close(w.heard)
	w.heard = make(chan struct{})
	return r
}

// runs returns the runs of a task in Go so far.
func (w *world) runs(id task.ID) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]call{}, w.calls[id]...)
}

// run waits for the first run of a task in Go and returns it.
func (w *world) run(tb testing.TB, id task.ID) call {
	tb.Helper()
	for late := time.After(2 * time.Minute); ; {
		w.mu.Lock()
		heard, calls := w.heard, w.calls[id]
		w.mu.Unlock()
		if len(calls) > 0 {
			return calls[0]
		}
		select {
		case <-heard:
		case <-late:
			tb.Fatalf("task %s does not run in Go", id)
		}
	}
}

// end is the end of a task as the Python producer sees it.
type end struct {
	Value json.RawMessage
	Error *struct {
		Type, Module, Text string
		Args               []any
	}
	State     string
	Traceback string
}

// eval runs Python code, which sets result. GOQ and PYQ are the queues.
func (w *world) eval(tb testing.TB, code string, v any) {
	tb.Helper()
	w.py.Eval(tb, fmt.Sprintf("GOQ, PYQ = %q, %q\n%s", w.goQueue, w.pyQueue, code), v)
}

// submit evaluates a Python expression that submits a task, and returns the id and the end of that
// task.
func (w *world) submit(tb testing.TB, expression string) (task.ID, end) {
	tb.Helper()
	var got struct {
		ID  task.ID
		End end
	}
	w.eval(tb, "r = "+expression+"\nresult = dict(id=r.id, end=outcome(r))", &got)
	return got.ID, got.End
}

// wantJSON fails the test unless got is the same JSON value as want.
func wantJSON(tb testing.TB, got json.RawMessage, want string) {
	tb.Helper()
	read := func(data []byte) (v any) {
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			tb.Fatalf("%q: %v", data, err)
		}
		return v
	}
	if d := cmp.Diff(read([]byte(want)), read(got)); d != "" {
		tb.Errorf("(-want +got):\n%s", d)
	}
}

// value waits for the result of a Go future.
func value[R any](tb testing.TB, f *task.Future[R], err error) R {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	v, err := f.Get(testwait.Long(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return v
}
