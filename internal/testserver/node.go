package testserver

import (
	"context"
	"fmt"
	"sync"
)

// node controls one server process: it can kill, pause and restart the server on the same ports and
// data. Each kind of server embeds it.
//
// Safe for concurrent use. Methods that start, stop, pause or resume the server run one at a time.
type node struct {
	name  string
	start func() (*process, error)
	probe func(ctx context.Context) error // returns nil once the server serves requests

	mu     sync.Mutex
	proc   *process
	paused bool
}

// launch starts the process and does not wait. Call it with n.mu held, or before the node is
// shared.
func (n *node) launch() error {
	proc, err := n.start()
	if err == nil {
		n.proc, n.paused = proc, false
	}
	return err
}

// ready waits until the server serves requests. Its error names the server.
func (n *node) ready(ctx context.Context) error {
	if err := n.proc.await(ctx, n.probe); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

// PID returns the process id of the server, for measurements. It changes at each start.
func (n *node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc.cmd.Process.Pid
}

// Kill kills the server at once with SIGKILL: nothing is flushed.
func (n *node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proc.kill()
}

// Stop ends the server in good order. If ctx ends first, it kills the server.
func (n *node) Stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	return n.proc.terminate(ctx)
}

// Pause freezes the server: its connections stay open and the server does not answer.
func (n *node) Pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.proc.ended() {
		n.proc.pause()
		n.paused = true
	}
}

// Resume continues a server that Pause froze.
func (n *node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
}

// resume continues a paused process. Call it with n.mu held.
func (n *node) resume() {
	if n.paused && !n.proc.ended() {
		n.proc.resume()
	}
	n.paused = false
}

// Restart starts the server on the same ports and data and waits until it serves requests. A server
// that still runs is stopped in good order first. After Kill the start includes the server's
// recovery.
func (n *node) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	if err := n.proc.terminate(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", n.name, err)
	}
	return n.restart(ctx)
}

// restart starts the process and waits until the server serves requests. Call it with n.mu held,
// after the old process has ended.
func (n *node) restart(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	return n.ready(ctx)
}

// revive repairs the state that a test left: a paused, stopped or killed server serves requests
// again.
func (n *node) revive(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resume()
	if n.proc.ended() {
		return n.restart(ctx)
	}
	return n.ready(ctx)
}

// Log returns the output of the server since its first start.
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
