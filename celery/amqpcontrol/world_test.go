package amqpcontrol_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/celery/amqpcontrol"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/consumer"
	node "github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

var (
	goAdd  = task.New[[]int, int]("go.add")
	goFail = task.New[string, int]("go.fail", task.WithMaxRetries(1), task.WithRetryDelay(time.Millisecond))
	goHold = task.New[string, string]("go.hold")
)

// world is a virtual host with a consumer in Go, whose tasks are in memory, and the command line of
// Celery.
type world struct {
	t   testing.TB
	url string
	bus *control.Bus
	c   *consumer.Consumer
	p   *producer.Producer
	py  *shell

	release  chan struct{} // ends one held task
	canceled chan error    // the causes of held tasks whose contexts ended
	ended    chan error    // the result of the consumer's Run
}

// transport opens a transport on the virtual host.
func transport(t testing.TB, url string) *amqpcontrol.Transport {
	t.Helper()
	tr, err := amqpcontrol.New(amqpcontrol.Config{Connect: amqpconnect.Config{URLs: []string{url}}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// newBus opens a bus on the virtual host. It is closed at the end of the test.
func newBus(t testing.TB, url string) *control.Bus {
	t.Helper()
	b, err := control.NewBus(control.Config{Transport: transport(t, url), Host: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("closing the bus: %v", err)
		}
	})
	return b
}

// newWorld starts a world. The consumer is the node "go", which Celery knows as go@vm.
func newWorld(t *testing.T) *world {
	t.Helper()
	python := testserver.RequirePython(t)
	w := &world{t: t, url: testserver.RequireRabbit(t).NewVhost(t), release: make(chan struct{}), canceled: make(chan error, 8), ended: make(chan error, 1)}
	w.bus = newBus(t, w.url)
	service, err := control.NewService(control.ServiceConfig{Bus: w.bus, Mingle: true, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	b := membroker.New()
	w.c, err = consumer.New(consumer.Config{
		Broker: b, Events: w.bus, Queues: map[string]consumer.QueueConfig{"goq": {Workers: 4}}, Logger: quiet(),
		Report: events.Report{NodeID: "go", HeartbeatEvery: 200 * time.Millisecond, Payloads: true}, ControlServices: []node.Service{service},
	})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(goAdd.Handle(w.c, func(_ context.Context, n []int) (int, error) { return n[0] + n[1], nil }))
	must(goFail.Handle(w.c, func(_ context.Context, text string) (int, error) {
		return 0, task.Retry(&task.RemoteError{Type: "boom", Message: text})
	}))
	must(goHold.Handle(w.c, w.hold))
	w.p, err = producer.New(producer.Config{Broker: b, Events: w.bus, Router: router.Static("goq"), Logger: quiet(), Report: events.Report{NodeID: "web"}})
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() { w.ended <- w.c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-w.ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-testwait.Long(t).Done():
			t.Error("the consumer has not ended")
		}
		_ = w.p.Close(context.Background())
		_ = b.Close(context.Background())
	})
	w.py = newShell(t, python, w.url)
	return w
}

// hold is the handler of go.hold: it ends with a release or its context.
func (w *world) hold(ctx context.Context, text string) (string, error) {
	select {
	case <-w.release:
		return text, nil
	case <-ctx.Done():
		w.canceled <- context.Cause(ctx)
		return "", ctx.Err()
	}
}

// submit submits a task.
func submit[A, R any](w *world, d task.Task[A, R], args A, opts ...task.Option) task.ID {
	w.t.Helper()
	f, err := d.Submit(w.t.Context(), w.p, args, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return f.ID()
}

// shell runs Celery's command line in one Python process.
type shell struct {
	t   testing.TB
	dir string
	env []string
	py  string
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// newShell starts the process. It ends with the test.
func newShell(t testing.TB, python, url string) *shell {
	t.Helper()
	dir := t.TempDir()
	program, err := os.ReadFile("testdata/app.py")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "app.py"), program, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, dir: dir, py: python}
	s.env = append(os.Environ(), "BROKER="+strings.Replace(url, "amqp://", "pyamqp://", 1), "QUEUE=pyq", "PYTHONDONTWRITEBYTECODE=1", "C_FORCE_ROOT=1", "TZ=UTC")
	_, s.out, s.in = s.start(exec.Command(python, "-u", "app.py"))
	return s
}

// start starts a Python process. It is told to end with the test, and killed if it does not.
func (s *shell) start(cmd *exec.Cmd) (*exec.Cmd, *bufio.Reader, io.Writer) {
	s.t.Helper()
	var log bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = s.dir, s.env, &log
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%v:\n%s", cmd.Args, log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	return cmd, bufio.NewReader(out), in
}

// run runs a command line of celery and returns its output and status.
func (s *shell) run(args ...string) (out string, status int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	line, err := json.Marshal(args)
	if err == nil {
		_, err = s.in.Write(append(line, '\n'))
	}
	var answer struct {
		Out    string
		Status int
	}
	if err == nil {
		line, err = s.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil {
		s.t.Fatalf("celery %v: %v", args, err)
	}
	return answer.Out, answer.Status
}

// inspect runs "celery inspect" for the Go node and returns its reply.
func (w *world) inspect(v any, args ...string) {
	w.t.Helper()
	out, _ := w.py.run(append([]string{"inspect", "-j", "-t", "30", "-d", "go@vm"}, args...)...)
	var replies map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &replies); err != nil || len(replies) != 1 {
		w.t.Fatalf("celery inspect %v: %v\n%s", args, err, out)
	}
	if err := json.Unmarshal(replies["go@vm"], v); err != nil {
		w.t.Fatalf("celery inspect %v: %v\n%s", args, err, out)
	}
}

// control runs "celery control" for the Go node and wants a text in its output.
func (w *world) control(want string, args ...string) {
	w.t.Helper()
	out, _ := w.py.run(append([]string{"control", "-t", "30", "-d", "go@vm"}, args...)...)
	if !strings.Contains(out, "go@vm: ") || !strings.Contains(out, want) {
		w.t.Errorf("celery control %v:\n%s\nwant %q", args, out, want)
	}
}
