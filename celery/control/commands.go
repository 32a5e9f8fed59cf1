package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"

	node "github.com/swarmiji/swarmiji/control"
)

// commands returns the command with one of Celery's names or aliases, nil for an unknown name.
func commands(name string) command {
	switch name {
	case "ping":
		return func(context.Context, *call) (any, error) { return done("pong"), nil }
	case "clock":
		return func(_ context.Context, c *call) (any, error) {
			return map[string]any{"clock": c.service.cfg.Bus.clock.value.Load()}, nil
		}
	case "stats":
		return stats
	case "active", "dump_active":
		return func(_ context.Context, c *call) (any, error) {
			return requests(c.service.name(c.node), c.node.Active(), true), nil
		}
	case "reserved", "dump_reserved":
		return func(_ context.Context, c *call) (any, error) {
			return requests(c.service.name(c.node), c.node.Reserved(), false), nil
		}
	case "scheduled", "dump_schedule":
		// a delayed task waits in the message broker, and the node does not know of it
		return func(context.Context, *call) (any, error) { return []any{}, nil }
	case "registered", "dump_tasks":
		return registered
	case "revoked", "dump_revoked":
		return func(_ context.Context, c *call) (any, error) {
			out := []string{}
			for id := range c.service.revoked.all(time.Now()) {
				out = append(out, id)
			}
			slices.Sort(out)
			return out, nil
		}
	case "active_queues":
		return activeQueues
	case "report":
		return report
	case "conf", "dump_conf":
		return conf
	case "memsample":
		return memsample
	case "query_task":
		return queryTask
	case "hello":
		return hello
	case "revoke":
		return revokeTasks
	case "terminate":
		return func(ctx context.Context, c *call) (any, error) { return terminate(ctx, c) }
	case "rate_limit":
		return rateLimit
	case "time_limit":
		return timeLimit
	case "pool_grow":
		return func(_ context.Context, c *call) (any, error) { return resize(c, 1, "pool will grow") }
	case "pool_shrink":
		return func(_ context.Context, c *call) (any, error) { return resize(c, -1, "pool will shrink") }
	case "add_consumer":
		return addConsumer
	case "cancel_consumer":
		return cancelConsumer
	case "enable_events":
		return func(_ context.Context, c *call) (any, error) { return switchEvents(c, true), nil }
	case "disable_events":
		return func(_ context.Context, c *call) (any, error) { return switchEvents(c, false), nil }
	case "heartbeat":
		return heartbeat
	case "shutdown":
		return func(_ context.Context, c *call) (any, error) {
			c.changes, c.after = true, c.node.Stop
			return nil, nil
		}
	case "election":
		return func(context.Context, *call) (any, error) { return nil, nil } // a node takes part in none
	case "autoscale":
		return refused("ValueError('Autoscale not enabled')")
	case "pool_restart":
		return refused("ValueError('Pool restarts not enabled')")
	case "objgraph", "memdump":
		return refused("NotImplementedError(" + repr("this worker has no "+name) + ")")
	}
	return nil
}

// refused is a command that a node never executes.
func refused(text string) command {
	return func(context.Context, *call) (any, error) { return failed(text), nil }
}

// revokeTasks is the command revoke. terminate also ends the contexts of the tasks that run; the
// signal is not used.
func revokeTasks(ctx context.Context, c *call) (any, error) {
	end, err := c.flag("terminate")
	if err != nil {
		return nil, err
	}
	if end {
		return terminate(ctx, c)
	}
	ids, err := c.list("task_id", maxRevoked)
	if err != nil {
		return nil, err
	}
	c.changes = true
	if err := c.service.revoke(ctx, c.node, false, ids); err != nil {
		return nil, err
	}
	return done("tasks %s flagged as revoked", strings.Join(ids, ", ")), nil
}

// terminate revokes tasks and ends the contexts of those that run.
func terminate(ctx context.Context, c *call) (any, error) {
	ids, err := c.list("task_id", maxRevoked)
	if err != nil {
		return nil, err
	}
	known := c.node.Active()
	known = append(known, c.node.Reserved()...)
	var found []string
	for _, id := range ids {
		if slices.ContainsFunc(known, func(t node.Task) bool { return string(t.ID) == id }) {
			found = append(found, id)
		}
	}
	c.changes = true
	if err := c.service.revoke(ctx, c.node, true, ids); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return done("terminate: tasks unknown"), nil
	}
	return done("terminate: %s", strings.Join(found, ", ")), nil
}

// rateLimit is the command rate_limit.
func rateLimit(_ context.Context, c *call) (any, error) {
	name, err := c.text("task_name")
	if err != nil {
		return nil, err
	}
	v, ok := c.args["rate_limit"]
	if !ok {
		return nil, missing("rate_limit")
	}
	rate, err := rateOf(v)
	if err != nil {
		return failed("Invalid rate limit string: ValueError(" + repr(err.Error()) + ")"), nil
	}
	if !slices.Contains(c.node.Names(), name) {
		return failed("unknown task"), nil
	}
	c.changes = true
	if err := c.node.SetRateLimit(name, rate); err != nil {
		return nil, err
	}
	if rate == "" {
		return done("rate limit disabled successfully"), nil
	}
	return done("new rate limit set successfully"), nil
}

// timeLimit is the command time_limit, which a node cannot execute.
func timeLimit(_ context.Context, c *call) (any, error) {
	name, err := c.optionalText("task_name")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(c.node.Names(), name) {
		return failed("unknown task"), nil
	}
	return failed("the time limits of a task of this worker are those of its definition and its message"), nil
}

// resize changes the number of workers of each queue by the argument n, to at least one.
func resize(c *call, sign int, reply string) (any, error) {
	n, err := c.number("n", 1, node.MaxWorkers)
	if err != nil {
		return nil, err
	}
	c.changes = true
	for _, q := range c.node.Stats().Queues {
		workers := min(max(q.Workers+sign*int(n), 1), node.MaxWorkers)
		if workers == q.Workers {
			continue
		}
		if err := c.node.Scale(q.Name, workers); err != nil {
			return nil, err
		}
	}
	return done("%s", reply), nil
}

// addConsumer is the command add_consumer. The queue gets as many workers as the node gives a queue
// by default.
func addConsumer(ctx context.Context, c *call) (any, error) {
	queue, err := c.text("queue")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"exchange", "routing_key"} {
		other, err := c.optionalText(name)
		if err != nil {
			return nil, err
		}
		if other != "" && other != queue {
			return failed(fmt.Sprintf("this worker consumes queues whose %s has the name of the queue", name)), nil
		}
	}
	changer, err := changerOf(c.node, queue)
	if err != nil {
		return nil, err
	}
	c.changes = true
	if slices.Contains(c.node.Queues(), queue) {
		return done("add consumer %s", queue), nil
	}
	if err := changer.ServeQueue(ctx, queue, 0); err != nil {
		return nil, err
	}
	return done("add consumer %s", queue), nil
}

// cancelConsumer is the command cancel_consumer. As in Celery it succeeds for a queue that the node
// does not consume.
func cancelConsumer(ctx context.Context, c *call) (any, error) {
	queue, err := c.text("queue")
	if err != nil {
		return nil, err
	}
	changer, err := changerOf(c.node, queue)
	if err != nil {
		return nil, err
	}
	c.changes = true
	if slices.Contains(c.node.Queues(), queue) {
		if err := changer.LeaveQueue(ctx, queue); err != nil {
			return nil, err
		}
	}
	return done("no longer consuming from %s", queue), nil
}

// changerOf returns n as a node whose queues can change. Returns an error if it is none, and for a
// name that no queue can have.
func changerOf(n node.Node, queue string) (node.QueueChanger, error) {
	if err := task.CheckName(queue); err != nil {
		return nil, err
	}
	changer, ok := capability.As[node.QueueChanger](n)
	if !ok {
		return nil, fmt.Errorf("the queues of this worker cannot change")
	}
	return changer, nil
}

// switchEvents is the command enable_events or disable_events.
func switchEvents(c *call, on bool) any {
	c.changes = true
	already, state := "", "disabled"
	if on {
		state = "enabled"
	}
	if !c.service.cfg.Bus.EnableTaskEvents(on) {
		already = "already "
	}
	return done("task events %s%s", already, state)
}

// heartbeat sends the node's last heartbeat again, with the current time.
func heartbeat(_ context.Context, c *call) (any, error) {
	bus := c.service.cfg.Bus
	bus.mu.Lock()
	e, ok := bus.beats[c.node.NodeID()]
	bus.mu.Unlock()
	if !ok {
		return nil, nil
	}
	e.Type, e.Time = events.WorkerHeartbeat, time.Now()
	return nil, bus.PublishNow(e)
}

// hello is the command by which a worker that starts asks the others for revoked tasks.
func hello(ctx context.Context, c *call) (any, error) {
	from, err := c.text("from_node")
	if err != nil {
		return nil, err
	}
	if from == c.service.name(c.node) {
		return nil, nil
	}
	if err := c.service.revokeNew(ctx, c.node, c.args["revoked"]); err != nil {
		return nil, err
	}
	return map[string]any{"revoked": c.service.revoked.forMingle(time.Now()), "clock": c.service.cfg.Bus.clock.forward()}, nil
}
