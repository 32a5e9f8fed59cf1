package control

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of a received message of events.
const (
	maxEventBody = 4 << 20 // bytes
	maxEventList = 10_000  // events
)

// fromCelery returns the events of a message and moves the clock behind theirs. ok is false if the
// message or one of its events is invalid; the others are returned.
func fromCelery(m *Message, c *clock) (es []events.Event, ok bool) {
	if !m.JSON || len(m.Body) > maxEventBody {
		return nil, false
	}
	var list []json.RawMessage
	if body := bytes.TrimLeft(m.Body, " \t\r\n"); len(body) > 0 && body[0] == '[' {
		if json.Unmarshal(body, &list) != nil || len(list) > maxEventList {
			return nil, false
		}
	} else {
		list = []json.RawMessage{body}
	}
	ok = true
	for _, one := range list {
		var fields map[string]any
		if json.Unmarshal(one, &fields) != nil {
			ok = false
			continue
		}
		c.adjust(fields["clock"])
		e, valid := fromFields(fields)
		if !valid {
			ok = false
			continue
		}
		es = append(es, e)
	}
	return es, ok
}

// reserved reports whether name is a field of Celery's form that toCelery makes of other values
// than Event.Fields.
func reserved(name string) bool {
	switch name {
	case "type", "hostname", "timestamp", "pid", "clock", "utcoffset", "uuid", "node", ownField,
		"name", "args", "kwargs", "retries", "queue", "root_id", "parent_id", "eta", "expires", "exchange", "routing_key",
		"result", "runtime", "pool", "exception", "traceback", "signum",
		"host", "role", "freq", "sw_ident", "sw_ver", "sw_sys", "active", "processed", "loadavg", "load", "mem", "queues", "stuck", "reserved":
		return true
	}
	return false
}

// fields is an event in Celery's form. A value of a wrong type counts as absent.
type fields map[string]any

func (f fields) text(name string) string {
	s, _ := f[name].(string)
	return s
}

func (f fields) number(name string) float64 {
	switch v := f[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	return 0
}

// count returns a number from 0 to 2^31-1.
func (f fields) count(name string) int { return int(min(max(f.number(name), 0), math.MaxInt32)) }

// duration returns a number of seconds.
func (f fields) duration(name string) time.Duration {
	s := f.number(name)
	if !(s > 0 && s < 1e9) {
		return 0
	}
	return time.Duration(math.Round(s * 1e9))
}

// fromFields returns the event with these fields, normalized. ok is false for an invalid one.
func fromFields(m map[string]any) (e events.Event, ok bool) {
	f := fields(m)
	if own, has := m[ownField]; has {
		return fromOwn(own)
	}
	e = events.Event{Type: strings.TrimPrefix(f.text("type"), ownPrefix), NodeID: f.text("hostname"), TaskID: task.ID(f.text("uuid"))}
	if node := f.text("node"); node != "" {
		e.NodeID = node
	}
	if t := f.number("timestamp"); t > 0 && t < 1<<38 {
		e.Time = time.UnixMilli(int64(math.Round(t * 1000)))
	}
	for name, v := range m {
		if v != nil && !reserved(name) {
			addField(&e, name, v)
		}
	}
	switch e.Type {
	case events.TaskSent, events.TaskReceived:
		f.ofTask(&e)
	case events.TaskStarted:
		e.PID = f.count("pid")
	case events.TaskSucceeded:
		e.Result, e.Runtime, e.Pool = f.text("result"), f.duration("runtime"), f.duration("pool")
	case "task-retried":
		e.Type, e.Retry = events.TaskFailed, true
		fallthrough
	case events.TaskFailed:
		e.Exception, e.Stack, e.Runtime, e.Pool = f.text("exception"), f.text("traceback"), f.duration("runtime"), f.duration("pool")
	case events.TaskRevoked:
		dropFalse(&e, "terminated")
		dropFalse(&e, "expired")
	case events.WorkerOnline, events.WorkerHeartbeat, events.WorkerOffline:
		f.ofWorker(&e)
	}
	e.Pool = max(e.Pool, e.Runtime)
	return e, events.Normalize(&e) == nil
}

// fromOwn returns the event in the field ownField, which is one in the form of package events.
func fromOwn(own any) (events.Event, bool) {
	data, err := json.Marshal(own)
	if err != nil {
		return events.Event{}, false
	}
	es, err := events.Decode(data)
	if err != nil || len(es) != 1 {
		return events.Event{}, false
	}
	return es[0], true
}

// ofTask sets the fields of a sent or received task.
func (f fields) ofTask(e *events.Event) {
	e.Name, e.Args, e.Retries, e.Queue = f.text("name"), f.text("args"), f.count("retries"), f.text("queue")
	if kwargs := f.text("kwargs"); kwargs != "" && kwargs != "{}" {
		e.Args = strings.TrimPrefix(e.Args+" "+kwargs, " ")
	}
	if e.Type == events.TaskSent {
		e.Exchange, e.RoutingKey = f.text("exchange"), f.text("routing_key")
	}
	info := events.TaskInfo{Parent: id(f.text("parent_id")), Root: id(f.text("root_id"))}
	if info.Root == e.TaskID {
		info.Root = ""
	}
	if eta, err := time.Parse(time.RFC3339Nano, f.text("eta")); err == nil {
		info.Due = eta
	}
	if e.Info().Attempt == 1 {
		info.Attempt = e.Retries + 1
	}
	e.Fields = info.Fields(e.Fields)
}

// id returns s if it is a valid id, otherwise "".
func id(s string) task.ID {
	if task.ID(s).Check() != nil {
		return ""
	}
	return task.ID(s)
}

// ofWorker sets the fields of a node. The machine of a Python worker is the part of its name after
// "@". An event without any of these fields has no Worker.
func (f fields) ofWorker(e *events.Event) {
	if f["freq"] == nil && f["sw_ident"] == nil {
		return
	}
	w := &events.Worker{
		Hostname: f.text("host"), Role: f.text("role"), Freq: f.duration("freq"),
		Ident: f.text("sw_ident"), Version: f.text("sw_ver"), System: f.text("sw_sys"),
		Active: f.count("active"), Reserved: f.count("reserved"), Stuck: f.count("stuck"), Processed: int64(min(max(f.number("processed"), 0), maxClock)), Load: -1, Mem: -1,
	}
	if f["host"] == nil {
		_, w.Hostname, _ = strings.Cut(e.NodeID, "@")
	}
	if f["role"] == nil {
		w.Role = events.RoleConsumer
	}
	if f["load"] != nil {
		w.Load = f.number("load")
	}
	if f["mem"] != nil {
		w.Mem = f.number("mem")
	}
	w.Queues = texts(f["queues"])
	e.Worker = w
}

// texts returns the texts of a list, nil for any other value.
func texts(v any) []string {
	if list, ok := v.([]string); ok {
		return list
	}
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// addField sets a field of e.Fields.
func addField(e *events.Event, name string, v any) {
	if e.Fields == nil {
		e.Fields = make(map[string]any)
	}
	e.Fields[name] = v
}

// dropFalse removes a field of e.Fields that is false.
func dropFalse(e *events.Event, name string) {
	if e.Fields[name] == false {
		delete(e.Fields, name)
	}
}
