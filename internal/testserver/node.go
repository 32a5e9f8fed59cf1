package testserver

import (
	"context"
	"fmt"
	"sync"
)

// node is the life of one server process: it can be killed, frozen and started again on the same ports and data. Each
// kind of server embeds it. All methods may be called from any goroutine; those that change whether the server runs wait
// for each other.
type node struct {
	name  string
	start func() (*process, error)
	probe func(ctx context.Context) error // nil once the server does its work

	mu     sync.Mutex
	proc   *process
	paused bool
}

// launch starts the process and does not wait.
func (n *node) launch() error {
	proc, err := n.start()
	if err == nil {
		n.proc, n.paused = proc, false
	}
	return err
}

// ready waits until the server does its work.
func (n *node) ready(ctx context.Context) error {
	if err := n.proc.await(ctx, n.probe); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// PID is the process id of the server, for measurements; it changes at each start.
func (n *node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc.cmd.Process.Pid
}

// Kill ends the server at once, as a loss of power of the process would: nothing is flushed.
func (n *node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proc.kill()
}

// Stop ends the server in good order; it is killed when ctx ends before it has.
func (n *node) Stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	return n.proc.terminate(ctx)
}

// Pause freezes the server: its connections stay open and nothing answers.
func (n *node) Pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.proc.ended() {
		n.proc.pause()
		n.paused = true
	}
}

// Resume ends a Pause.
func (n *node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
}

func (n *node) resume() {
	if n.paused && !n.proc.ended() {
		n.proc.resume()
	}
	n.paused = false
}

// Restart starts the server on the same ports and data and waits until it does its work. One that still runs is stopped in
// good order first; after Kill this is the recovery.
func (n *node) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	if err := n.proc.terminate(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", n.name, err)
	}
	return n.restart(ctx)
}

func (n *node) restart(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	return n.ready(ctx)
}

// revive mends what a test left: a paused, stopped or killed server does its work again.
func (n *node) revive(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	if n.proc.ended() {
		return n.restart(ctx)
	}
	return n.ready(ctx)
}

// Log returns what the server has logged since its first start.
func (n *node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc.log(0)
}

// running reports whether the process runs and is not paused.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.proc.ended() && !n.paused
}
