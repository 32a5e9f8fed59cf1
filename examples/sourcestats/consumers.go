package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
)

// consumerGroup holds the consumers of a run, as goroutines or processes.
type consumerGroup struct {
	fail    context.CancelCauseFunc // ends the run
	quits   []context.CancelFunc    // one for each consumer
	running sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

// newConsumerGroup returns an empty group and the context of a run. The context ends when a
// consumer fails.
func newConsumerGroup(ctx context.Context) (context.Context, *consumerGroup) {
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &consumerGroup{fail: fail}
}

// errEarly is the error of a run in which a consumer ended, even successfully, before it was told
// to.
var errEarly = errors.New("a consumer ended before the work was done")

// add starts a consumer, which run executes. Its context ends with stop, not with the run's
// context, so that the run's own error comes first.
func (c *consumerGroup) add(ctx context.Context, run func(ctx context.Context) error) {
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	c.quits = append(c.quits, quit)
	c.running.Go(func() {
		err := run(ctx)
		if ctx.Err() == nil {
			err = errors.Join(errEarly, err)
			c.fail(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	})
}

// stop ends the consumers, waits for them and returns their joined errors.
func (c *consumerGroup) stop() error {
	for _, quit := range c.quits {
		quit()
	}
	c.running.Wait()
	c.fail(nil)
	return errors.Join(c.errs...)
}

// runProcess runs this program as a consumer until ctx ends. Then it asks the process to stop and
// waits for it.
func runProcess(ctx context.Context, o *options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	//nolint:gosec // the program is this one, and its arguments are those of our own caller
	cmd := exec.CommandContext(ctx, self, "-consume", "-queue", o.queue, "-workers", strconv.Itoa(o.workers))
	cmd.Env = append(os.Environ(), brokerVariable+"="+o.broker)
	cmd.Stderr = o.stderr
	leash, err := cmd.StdinPipe() // Run closes it at the end; see consumeUntilTold
	if err != nil {
		return err
	}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // not every system has signals
			return leash.Close()
		}
		return nil
	}
	cmd.WaitDelay = consumer.DefaultShutdownTimeout + closeTime // then the process is killed
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil // Run returns ctx's error, which this program caused itself
	}
	return fmt.Errorf("consumer process: %w", err)
}

// consumeUntilTold is the main function of a consumer process. It runs until SIGTERM or until its
// standard input ends. The input ends when the starting process ends, for any reason.
func consumeUntilTold(o *options) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	swarm, err := open.Open(ctx, o.broker, open.Options{Name: "sourcestats consumer", Logger: o.logger})
	if err != nil {
		if ctx.Err() != nil { // told to end before it was ready, which is not a failure
			return nil
		}
		return err
	}
	defer closing(&err, swarm.Close)
	c, err := newConsumer(o, swarm)
	if err != nil {
		return err
	}
	return consumer.RunUntilSignal(ctx, c)
}
