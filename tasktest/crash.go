package tasktest

import (
	"context"
	"runtime"
)

// Point is a place in the run of a task at which its consumer may crash.
type Point int

const (
	// BeforeHandler is before the call of the handler. The consumer has the task.
	BeforeHandler Point = iota + 1
	// AfterHandler is after the return of the handler, before a result is stored or sent.
	AfterHandler
	// BeforeAck is before the acknowledgement. Result and successors are stored and sent. The retry of
	// a retried attempt is not sent.
	BeforeAck
)

// CrashAt has the consumer crash at a point of the next attempt of the task of a name. For a crash
// in the middle of a handler see the function Crash.
func (c *Consumer) CrashAt(p Point, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.crashAt[name] = p
}

// reached reports whether the consumer is to crash here.
func (c *Consumer) reached(p Point, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crashAt[name] != p {
		return false
	}
	delete(c.crashAt, name)
	return true
}

// Crash disconnects the consumer from broker, store and bus, as the end of its process would. The
// contexts of its running handlers end. Their later results and submissions have no effect. Their
// tasks go back to the queue. Start another consumer for them with Swarm.Start.
func (c *Consumer) Crash() {
	c.process.cut()
	c.Kill()
}

// Crashed reports whether the consumer has crashed.
func (c *Consumer) Crashed() bool { return c.process.dead.Load() }

// Crash ends the process of the handler that runs with ctx at this place, as Consumer.Crash does.
// It does not return: it ends the goroutine. Call it from a fake that the handler uses. It panics
// if ctx is not that of a handler.
func Crash(ctx context.Context) {
	c, ok := ctx.Value(consumerKey{}).(*Consumer)
	if !ok {
		panic("tasktest: Crash needs the context of a handler that a Swarm runs")
	}
	c.Crash()
	runtime.Goexit()
}
