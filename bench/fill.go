package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// fill is the workload of the process that queues the tasks of drain. It is a separate process, so
// that the memory of drain is that of a consumer. It is also the submitter that gets the results,
// and the listener of events.
const fill = "fill"

// filled is the message of the filling process when all tasks are queued.
const filled = "filled"

// preload queues the tasks. The returned function ends the process that preload started.
func preload(ctx context.Context, cfg *config, c client) (end func() error, err error) {
	if cfg.local() { // no other process could reach it
		return func() error { return nil }, c.submitAll(ctx, cfg.N)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, cfg.args(fill)...) //nolint:gosec // this program
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	said, err := bufio.NewReader(out).ReadString('\n')
	if said != filled+"\n" {
		return nil, errors.Join(fmt.Errorf("the filling process said %q", said), err, end())
	}
	return end, nil
}

// fillQueue queues the tasks, reports that, and runs until its input ends.
func fillQueue(ctx context.Context, cfg *config) (report Report, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err := c.submitAll(ctx, cfg.N); err != nil {
		return Report{}, err
	}
	if _, err := fmt.Fprintln(os.Stdout, filled); err != nil {
		return Report{}, err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return Report{}, err
}
