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

// crew is the consumers of a run, whether goroutines or processes.
type crew struct {
	fail    context.CancelCauseFunc // ends the run
	quits   []context.CancelFunc    // one for each member
	members sync.WaitGroup
	mu      sync.Mutex
	errs    []error
}

// newCrew returns the context of a run, which ends when a member fails.
func newCrew(ctx context.Context) (context.Context, *crew) {
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &crew{fail: fail}
}

// errEarly is why a run fails whose consumer ended, even well, before it was told to.
var errEarly = errors.New("a consumer ended before the work was done")

// add starts a member. Its context ends with stop, and not with the run, which is first to know why it ends.
func (c *crew) add(ctx context.Context, member func(ctx context.Context) error) {
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	c.quits = append(c.quits, quit)
	c.members.Go(func() {
		err := member(ctx)
		if ctx.Err() == nil {
			err = errors.Join(errEarly, err)
			c.fail(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	})
}

// stop ends the members, waits for them, and returns what went wrong with any.
func (c *crew) stop() error {
	for _, quit := range c.quits {
		quit()
	}
	c.members.Wait()
	c.fail(nil)
	return errors.Join(c.errs...)
}

// runProcess runs this program as a consumer until ctx ends, then asks it to stop and waits for it.
func runProcess(ctx context.Context, o *options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	//nolint:gosec // the program is this one, and its arguments are those of our own caller
	cmd := exec.CommandContext(ctx, self, "-consume", "-queue", o.queue, "-workers", strconv.Itoa(o.workers))
	cmd.Env = append(os.Environ(), brokerVariable+"="+o.broker)
	cmd.Stderr = o.stderr
	leash, err := cmd.StdinPipe() // which Run closes in the end; see consumeUntilTold
	if err != nil {
		return err
	}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // not every system has signals
			return leash.Close()
		}
		return nil
	}
	cmd.WaitDelay = consumer.DefaultShutdownTimeout + closeTime // then it is killed
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return nil // Run has an error of ctx's end for us, which was our doing
	}
	return fmt.Errorf("consumer process: %w", err)
}

// consumeUntilTold is a consumer process: until SIGTERM, or the end of its input, which comes with the end of the process
// that started it, however that ends.
func consumeUntilTold(o *options) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	swarm, err := open.Open(ctx, o.broker, open.Options{Name: "sourcestats consumer", Logger: o.logger})
	if err != nil {
		if ctx.Err() != nil { // told to end before it was ready, which is no failure
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
