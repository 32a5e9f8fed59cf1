package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/celery/amqp"
	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// pair holds the arguments of the measured task.
type pair struct {
	X int `celery:"0,x"`
	Y int `celery:"1,y"`
}

var add = task.New[pair, int]("bench.add")

// bench measures one row after the other, each on queues of its own.
type bench struct {
	url, python, dir string
	tasks            int
	queues           int
}

// row is one line of the table: the rates of both sides.
type row struct {
	name           string
	python, golang func(ctx context.Context) (float64, error)
	target         bool // Go must be target times as fast
}

func (b *bench) rows() []row {
	drain := func(results bool, work func(ctx context.Context, queue string) (stop func() error, err error)) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.drain(ctx, results, work) }
	}
	return []row{
		{"worker, results dropped", drain(false, b.startPython), drain(false, b.startGo), true},
		{"worker, results by rpc", drain(true, b.startPython), drain(true, b.startGo), true},
		{"producer, one after the other", b.submitPython, b.submitGo(1), false},
		{"producer, 500 at once", b.submitPython, b.submitGo(500), false},
	}
}

// wires returns how tasks of Celery are encoded.
func wires() serializer.Wire {
	return serializer.Wire{
		Formats:     []serializer.Format{wire.Format{}},
		Serializers: []serializer.Serializer{wire.JSONArgs{}, serializer.JSON{}},
	}
}

// connect returns a Broker and the address of the server.
func (b *bench) connect() (*amqp.Broker, amqpconnect.Config, error) {
	at := amqpconnect.Config{URLs: []string{b.url}}
	own, err := amqp.New(amqp.Config{Connect: at})
	return own, at, err
}

// queue returns the name of a new queue.
func (b *bench) queue() string {
	b.queues++
	return "bench." + strconv.Itoa(b.queues)
}

// drain fills a new queue, starts a worker with work, and returns the rate at which nine tenths of
// the tasks leave the queue. The first tenth is the start of the worker.
func (b *bench) drain(ctx context.Context, results bool, work func(ctx context.Context, queue string) (stop func() error, err error)) (rate float64, err error) {
	own, _, err := b.connect()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, own.Close(context.WithoutCancel(ctx))) }()
	queue := b.queue()
	if err := b.fill(ctx, own, queue, results); err != nil {
		return 0, err
	}
	stop, err := work(ctx, queue)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var begun time.Time
	left := 0
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		st, err := own.Stats(ctx, queue)
		switch {
		case err != nil:
			return 0, err
		case begun.IsZero() && st.Ready <= b.tasks*9/10:
			begun, left = time.Now(), st.Ready
		case st.Ready == 0:
			return float64(left) / time.Since(begun).Seconds(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// fill puts the tasks into a new queue. Their results go to a queue without a
// consumer, or nowhere.
func (b *bench) fill(ctx context.Context, own *amqp.Broker, queue string, results bool) error {
	reply := queue + ".replies"
	if err := own.Declare(ctx, broker.Queue{Name: queue}, broker.Queue{Name: reply}); err != nil {
		return err
	}
	ms := make([]broker.Outgoing, b.tasks)
	for i := range ms {
		args, err := wire.JSONArgs{}.Marshal(pair{1, i})
		if err != nil {
			return err
		}
		e := task.Envelope{ID: task.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), Name: add.Name(), Args: args, ContentType: wire.ContentJSONArgs}
		if e.Meta.IgnoreResult = task.Set(!results); results {
			e.ReplyTo = reply
		}
		m, err := wire.Format{}.Encode(&e)
		if err != nil {
			return err
		}
		ms[i] = broker.Outgoing{Queue: queue, Message: m}
	}
	return own.PublishBatch(ctx, ms)
}

// startPython starts a Python worker of queue.
func (b *bench) startPython(ctx context.Context, queue string) (stop func() error, err error) {
	cmd := b.command(ctx, queue, "-m", "celery", "-A", "worker", "worker", "-c", strconv.Itoa(runtime.GOMAXPROCS(0)),
		"--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR", "-Q", queue)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		err := cmd.Process.Signal(syscall.SIGTERM) // it ends its own processes
		return errors.Join(err, cmd.Wait())
	}, nil
}

// command returns a command of Python with the settings of worker.py.
func (b *bench) command(ctx context.Context, queue string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.python, args...) //nolint:gosec // the caller's interpreter
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "BENCH_URL="+b.url, "BENCH_QUEUE="+queue, "PYTHONDONTWRITEBYTECODE=1", "C_FORCE_ROOT=1")
	cmd.Stderr = os.Stderr
	return cmd
}

// startGo starts a Go worker of queue.
func (b *bench) startGo(ctx context.Context, queue string) (stop func() error, err error) {
	own, at, err := b.connect()
	if err != nil {
		return nil, err
	}
	results, err := amqp.NewResults(amqp.ResultsConfig{Connect: at})
	if err != nil {
		return nil, err
	}
	c, err := consumer.New(consumer.Config{
		Broker: own, Results: results, Wire: wires(), Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]consumer.QueueConfig{queue: {}},
	})
	if err != nil {
		return nil, err
	}
	if err := add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.X + p.Y, nil }); err != nil {
		return nil, err
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	return func() error {
		c.Stop()
		ctx := context.WithoutCancel(ctx)
		return errors.Join(<-ran, results.Close(ctx), own.Close(ctx))
	}, nil
}

// submitPython returns the rate at which Python submits tasks. It does not wait for confirmations.
func (b *bench) submitPython(ctx context.Context) (float64, error) {
	out, err := b.command(ctx, b.queue(), "worker.py", strconv.Itoa(b.tasks)).Output()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return 0, fmt.Errorf("the output of Python: %w", err)
	}
	return float64(b.tasks) / seconds, nil
}

// submitGo returns the function that measures the rate at which Go submits tasks, with size of them
// in each call. Every task is confirmed.
func (b *bench) submitGo(size int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (rate float64, err error) {
		own, _, err := b.connect()
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, own.Close(context.WithoutCancel(ctx))) }()
		queue := b.queue()
		p, err := producer.New(producer.Config{
			Broker: own, Wire: wires(), Router: router.Static(queue), Queues: []broker.Queue{{Name: queue}},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
		args := make([]pair, size)
		submit := func() error {
			if size == 1 {
				_, err := add.Submit(ctx, p, args[0], task.WithIgnoreResult(true))
				return err
			}
			_, err := add.SubmitAll(ctx, p, args, task.WithIgnoreResult(true))
			return err
		}
		if err := submit(); err != nil { // connects
			return 0, err
		}
		begun := time.Now()
		for range b.tasks / size {
			if err := submit(); err != nil {
				return 0, err
			}
		}
		return float64(b.tasks/size*size) / time.Since(begun).Seconds(), nil
	}
}
