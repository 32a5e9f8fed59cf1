package control

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	node "github.com/swarmiji/swarmiji/control"
)

// requestInfo returns a task on a node as Celery describes it. Nodes do not tell arguments.
func requestInfo(id string, t *node.Task, active bool) map[string]any {
	m := map[string]any{
		"id": string(t.ID), "name": t.Name, "type": t.Name, "args": []any{}, "kwargs": map[string]any{}, "hostname": id,
		"time_start": nil, "acknowledged": false, "worker_pid": nil,
		"delivery_info": map[string]any{"exchange": "", "routing_key": t.Queue, "priority": 0, "redelivered": nil},
	}
	if active {
		m["time_start"], m["worker_pid"] = seconds(t.Since), os.Getpid()
	}
	return m
}

// requests returns tasks of a node as Celery describes them.
func requests(id string, ts []node.Task, active bool) []map[string]any {
	out := make([]map[string]any, len(ts))
	for i := range ts {
		out[i] = requestInfo(id, &ts[i], active)
	}
	return out
}

// queryTask is the command query_task: the state and the description of those of the given tasks
// that the node holds.
func queryTask(_ context.Context, c *call) (any, error) {
	ids, err := c.list("ids", maxRevoked)
	if err != nil {
		return nil, err
	}
	out := make(map[string]any)
	add := func(state string, ts []node.Task) {
		for i := range ts {
			if slices.Contains(ids, string(ts[i].ID)) {
				out[string(ts[i].ID)] = []any{state, requestInfo(c.service.name(c.node), &ts[i], state == "active")}
			}
		}
	}
	add("reserved", c.node.Reserved())
	add("active", c.node.Active())
	return out, nil
}

// registered is the command registered: the sorted names of the tasks. Names that begin with
// "celery." are Celery's own, and are listed only with the argument builtins.
func registered(_ context.Context, c *call) (any, error) {
	builtins, err := c.flag("builtins")
	if err != nil {
		return nil, err
	}
	names := slices.Clone(c.node.Names())
	if !builtins {
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "celery.") })
	}
	slices.Sort(names)
	return slices.Concat([]string{}, names), nil
}

// activeQueues is the command active_queues.
func activeQueues(_ context.Context, c *call) (any, error) {
	out := []map[string]any{}
	for _, name := range c.node.Queues() {
		out = append(out, map[string]any{
			"name": name, "routing_key": name, "durable": true, "exclusive": false, "auto_delete": false, "no_ack": false, "alias": nil,
			"bindings": []any{}, "queue_arguments": nil, "binding_arguments": nil, "consumer_arguments": nil, "no_declare": nil,
			"expires": nil, "message_ttl": nil, "max_length": nil, "max_length_bytes": nil, "max_priority": nil,
			"exchange": map[string]any{
				"name": name, "type": "direct", "durable": true, "auto_delete": false, "passive": false, "arguments": nil,
				"delivery_mode": nil, "no_declare": false,
			},
		})
	}
	return out, nil
}

// stats is the command stats. Each queue of a node has workers of its own: max-concurrency is their
// sum. Nodes do not count by the names of tasks, so total is empty, and totals has the counts.
func stats(_ context.Context, c *call) (any, error) {
	s := c.node.Stats()
	workers, prefetch, queues := 0, 0, make(map[string]any)
	for _, q := range s.Queues {
		workers, prefetch = workers+q.Workers, prefetch+max(q.Prefetch, 0)
		queues[q.Name] = map[string]any{"workers": q.Workers, "active": q.Active, "reserved": q.Reserved, "paused": q.Paused}
	}
	pid := os.Getpid()
	return map[string]any{
		"total": map[string]any{}, "totals": s.Totals, "queues": queues, "pid": pid,
		"clock":  strconv.FormatInt(c.service.cfg.Bus.clock.value.Load(), 10),
		"uptime": int(time.Since(c.service.begin).Seconds()),
		"pool": map[string]any{
			"implementation": "swarmiji:goroutines", "max-concurrency": workers, "processes": []int{pid},
			"max-tasks-per-child": "N/A", "put-guarded-by-semaphore": false, "timeouts": []int{0, 0}, "writes": map[string]any{},
		},
		"broker": c.service.cfg.Bus.transport.About(), "prefetch_count": prefetch, "rusage": "N/A",
	}, nil
}

// conf is the command conf: the settings of a node for which Celery has a name.
func conf(_ context.Context, c *call) (any, error) {
	workers := 0
	for _, q := range c.node.Stats().Queues {
		workers += q.Workers
	}
	about := c.service.cfg.Bus.transport.About()
	return map[string]any{
		"broker_url":         fmt.Sprintf("%v://%v:%v/%v", about["transport"], about["hostname"], about["port"], about["virtual_host"]),
		"worker_concurrency": workers, "task_queues": c.node.Queues(), "task_serializer": "json", "enable_utc": true, "timezone": "UTC",
		"worker_send_task_events": !c.service.cfg.Bus.quiet.Load(),
	}, nil
}

// report is the command report: the versions of the software.
func report(_ context.Context, c *call) (any, error) {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, d := range info.Deps {
			if d.Path == "github.com/swarmiji/swarmiji" {
				version = d.Version
			}
		}
	}
	about := c.service.cfg.Bus.transport.About()
	return done("\nsoftware -> swarmiji:%s go:%s\n            transport:%v\nplatform -> system:%s arch:%s processors:%d\n",
		version, runtime.Version(), about["transport"], runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), nil
}

// memsample is the command memsample: the memory that the program has from the system.
func memsample(context.Context, *call) (any, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("%.2fMB", float64(m.Sys)/1e6), nil
}
