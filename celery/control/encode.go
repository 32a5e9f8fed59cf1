package control

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
)

const (
	// ownKey begins the types of events that Celery would misunderstand.
	ownKey    = "swarmiji"
	ownPrefix = ownKey + "-"
	// ownField holds an event in the form of package events, if Celery's fields cannot express it.
	ownField = "swarmiji"
)

// ofTask reports whether typ is a type of events that consumers and producers send about their
// tasks. Revocations are not among them.
func ofTask(typ string) bool {
	return strings.HasPrefix(typ, "task-") && typ != events.TaskRevoke || typ == events.GroupProgress
}

// celeryType returns the type under which Celery receives e.
func celeryType(e *events.Event) string {
	switch {
	case e.Type == events.TaskFailed && e.Retry && e.TaskID != "":
		return "task-retried"
	case strings.HasPrefix(e.Type, "task-") && (e.TaskID == "" || e.Type == events.TaskRevoke),
		strings.HasPrefix(e.Type, "worker-") && !ofConsumer(e):
		return ownPrefix + e.Type
	}
	return e.Type
}

// ofConsumer reports whether a consumer has sent e about itself.
func ofConsumer(e *events.Event) bool {
	return e.NodeID != "" && e.Worker != nil && e.Worker.Observer == "" && e.Worker.Role != events.RoleProducer
}

// isTask reports whether Celery takes m for an event of a task, which may be in a list.
func isTask(m map[string]any) bool { return strings.HasPrefix(m["type"].(string), "task-") }

// routingKey returns the routing key of an event in Celery's form.
func routingKey(m map[string]any) string { return strings.ReplaceAll(m["type"].(string), "-", ".") }

// toCelery returns e in Celery's form. name is the name of its node for Celery. If the form cannot
// express all of e, it has the field ownField, too.
func toCelery(e *events.Event, name string, clock int64) map[string]any {
	m := map[string]any{
		"type": celeryType(e), "hostname": name, "timestamp": seconds(e.Time), "pid": os.Getpid(), "clock": clock, "utcoffset": utcOffset(),
	}
	for key, v := range e.Fields {
		if !reserved(key) {
			m[key] = v
		}
	}
	if name != e.NodeID {
		m["node"] = e.NodeID
	}
	if e.TaskID != "" {
		m["uuid"] = string(e.TaskID)
	}
	switch m["type"] {
	case events.TaskSent, events.TaskReceived:
		taskFields(m, e)
	case events.TaskStarted:
		m["pid"] = e.PID
	case events.TaskSucceeded:
		m["result"], m["runtime"], m["pool"] = e.Result, e.Runtime.Seconds(), e.Pool.Seconds()
	case events.TaskFailed, "task-retried":
		m["exception"], m["traceback"], m["runtime"], m["pool"] = e.Exception, e.Stack, e.Runtime.Seconds(), e.Pool.Seconds()
	case events.TaskRevoked:
		for _, name := range []string{"terminated", "expired"} {
			if m[name] == nil {
				m[name] = false
			}
		}
		m["signum"] = nil
	case events.WorkerOnline, events.WorkerHeartbeat, events.WorkerOffline:
		workerFields(m, e.Worker)
	}
	// a listener decodes the same event from m; few events need ownField
	if got, ok := fromFields(m); !ok || !reflect.DeepEqual(got, *e) {
		if own, err := events.Encode([]events.Event{*e}); err == nil { // e came from an encoded message
			m[ownField] = json.RawMessage(own)
		}
	}
	return m
}

// taskFields adds the fields of a sent or received task to m.
func taskFields(m map[string]any, e *events.Event) {
	m["name"], m["args"], m["kwargs"], m["retries"], m["queue"] = e.Name, e.Args, "{}", e.Retries, e.Queue
	m["root_id"], m["parent_id"], m["eta"], m["expires"] = string(e.TaskID), nil, nil, nil
	info := e.Info()
	for _, name := range []string{"root", "parent", "due", "attempt"} {
		delete(m, name) // Celery's monitors have other things under these names
	}
	if info.Root != "" {
		m["root_id"] = string(info.Root)
	}
	if info.Parent != "" {
		m["parent_id"] = string(info.Parent)
	}
	if !info.Due.IsZero() {
		m["eta"] = info.Due.Format("2006-01-02T15:04:05.000000-07:00")
	}
	if e.Type == events.TaskSent {
		m["exchange"], m["routing_key"] = e.Exchange, e.RoutingKey
	}
}

// workerFields adds the fields of a node to m. Celery's hostname is the id of the node, so the name
// of the machine is "host".
func workerFields(m map[string]any, w *events.Worker) {
	m["host"], m["role"], m["freq"] = w.Hostname, w.Role, w.Freq.Seconds()
	m["sw_ident"], m["sw_ver"], m["sw_sys"] = w.Ident, w.Version, w.System
	m["active"], m["processed"], m["loadavg"] = w.Active, w.Processed, loadAverages()
	m["reserved"], m["stuck"], m["load"], m["mem"] = w.Reserved, w.Stuck, w.Load, w.Mem
	if len(w.Queues) > 0 {
		m["queues"] = w.Queues
	}
}

// seconds returns t as Celery's timestamp, in whole milliseconds; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// utcOffset returns Celery's utcoffset: the hours by which local time is behind UTC.
func utcOffset() int {
	_, east := time.Now().Zone()
	return -east / 3600
}

// loadAverages returns the machine's load averages of 1, 5 and 15 minutes, which are 0 if the
// system does not tell them.
func loadAverages() []float64 {
	load := make([]float64, 3)
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return load
	}
	for i, text := range strings.Fields(string(data)) {
		if i == len(load) {
			break
		}
		load[i], _ = strconv.ParseFloat(text, 64)
	}
	return load
}
