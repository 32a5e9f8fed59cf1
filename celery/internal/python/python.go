// Package python runs a Celery application in Python for tests: a worker and a producer. Only tests
// may import it.
package python

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

//go:embed host.py
var program []byte

// startTime limits the start of a Python process on a busy machine, and answerTime one answer.
const (
	startTime  = 2 * time.Minute
	answerTime = 3 * time.Minute
)

// Config configures the application.
type Config struct {
	Broker  string // URL for Celery
	Results string // URL for Celery, such as "rpc://"
	Queue   string // default queue of the application, which the worker consumes
	Node    string // name of the worker, such as "py@host"
	Msgpack bool   // results are written in msgpack
}

// Event is a report of the worker about a task. Its kind is started, ended, retried, failed,
// revoked or unknown.
type Event struct {
	Event, ID, Name     string
	Args                []any
	Kwargs              map[string]any
	Retries             int
	Parent, Root, Group string
	State               string
	Result              any
	Exception           string
}

// process is a Python process that reads and writes lines of JSON. It ends with its input.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed when the output ends
	log   string      // the file of its error output
}

// start starts the application as "worker" or "producer" and waits until it is ready. Its files
// are in dir.
func start(tb testing.TB, dir, mode string, c Config) *process {
	tb.Helper()
	path := filepath.Join(dir, "host.py")
	if err := os.WriteFile(path, program, 0o600); err != nil {
		tb.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, mode+".log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	results := "json"
	if c.Msgpack {
		results = "msgpack"
	}
	cmd := exec.Command(testserver.RequirePython(tb), "-u", path, mode)
	cmd.Dir, cmd.Stderr = dir, log
	cmd.Env = append(os.Environ(), "BROKER="+c.Broker, "BACKEND="+c.Results, "QUEUE="+c.Queue, "NODE="+c.Node, "RESULTS="+results,
		"PYTHONDONTWRITEBYTECODE=1", "C_FORCE_ROOT=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, lines: make(chan []byte, 1024), log: log.Name()}
	go func() {
		defer close(p.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			if line[0] == '{' { // not a line of the worker's banner
				p.lines <- line
			}
		}
	}()
	var ready struct{ Ready bool }
	if err := p.read(startTime, &ready); err != nil || !ready.Ready {
		p.close()
		tb.Fatalf("the Python %s is not ready: %v\n%s", mode, err, p.errors())
	}
	return p
}

// read reads one line into v.
func (p *process) read(limit time.Duration, v any) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return errors.New("it has ended")
		}
		if err := json.Unmarshal(line, v); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		return nil
	case <-late.C:
		return errors.New("no line in time")
	}
}

// errors returns the end of the error output.
func (p *process) errors() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}

// close ends the process and waits for it.
func (p *process) close() {
	_ = p.in.Close()
	done := make(chan struct{})
	go func() {
		for range p.lines { // the reader must not block
		}
		_ = p.cmd.Wait()
		close(done)
	}()
	late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-done
}

// Producer runs Python code that submits tasks. Safe for concurrent use; calls run one at a time.
type Producer struct {
	mu sync.Mutex
	p  *process
}

// StartProducer starts a producer. Its files are in dir. Call Close at the end.
func StartProducer(tb testing.TB, dir string, c Config) *Producer {
	tb.Helper()
	return &Producer{p: start(tb, dir, "producer", c)}
}

// Eval runs code, with the names of host.py, and decodes the variable result into v. It fails the
// test if the code raises an exception.
func (p *Producer) Eval(tb testing.TB, code string, v any) {
	tb.Helper()
	request, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		tb.Fatal(err)
	}
	var reply struct {
		Value json.RawMessage
		Error string
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err = p.p.in.Write(append(request, '\n')); err == nil {
		err = p.p.read(answerTime, &reply)
	}
	if err != nil {
		tb.Fatalf("Python: %v\n%s\n%s", err, code, p.p.errors())
	}
	if reply.Error != "" {
		tb.Fatalf("Python: %s\n%s", reply.Error, code)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(reply.Value, v); err != nil {
		tb.Fatalf("Python answered %s: %v\n%s", reply.Value, err, code)
	}
}

// Close ends the process.
func (p *Producer) Close() { p.p.close() }

// Worker is a Celery worker with one thread. Safe for concurrent use.
type Worker struct {
	p *process

	mu     sync.Mutex
	events map[string][]Event // by the id of the task
	heard  chan struct{}      // closed and replaced at each event
	ended  bool
}

// StartWorker starts a worker and waits until it consumes. Its files are in dir. Call Close at the
// end.
func StartWorker(tb testing.TB, dir string, c Config) *Worker {
	tb.Helper()
	w := &Worker{p: start(tb, dir, "worker", c), events: make(map[string][]Event), heard: make(chan struct{})}
	go w.collect()
	return w
}

// collect keeps the events until the process ends.
func (w *Worker) collect() {
	for line := range w.p.lines {
		var e Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		w.mu.Lock()
		w.events[e.ID] = append(w.events[e.ID], e)
		close(w.heard)
		w.heard = make(chan struct{})
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	close(w.heard)
}

// Events returns the events of a task so far.
func (w *Worker) Events(id string) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Event{}, w.events[id]...)
}

// Wait returns the first event of this kind about the task. It fails the test if none comes.
func (w *Worker) Wait(tb testing.TB, id, event string) Event {
	tb.Helper()
	late := time.NewTimer(answerTime)
	defer late.Stop()
	for {
		w.mu.Lock()
		heard, ended := w.heard, w.ended
		for _, e := range w.events[id] {
			if e.Event == event {
				w.mu.Unlock()
				return e
			}
		}
		w.mu.Unlock()
		if ended {
			tb.Fatalf("the Python worker has ended:\n%s", w.p.errors())
		}
		select {
		case <-heard:
		case <-late.C:
			tb.Fatalf("no event %s of task %s: %+v\n%s", event, id, w.Events(id), w.p.errors())
		}
	}
}

// Close ends the process.
func (w *Worker) Close() { w.p.close() }
