package pages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/inspect"
)

// mark is a state as a word with a sign, for the template "state".
type mark struct{ Class, Sign, Word string }

// badge returns the mark of a state of a task, a job or a check.
func badge(state any) mark {
	word := fmt.Sprint(state)
	m := mark{"", "·", word}
	switch word {
	case "succeeded", "FINISHED", "ok", "online":
		m.Class, m.Sign = "good", "✓"
	case "failed", "dead", "FAILED", "expired", "offline":
		m.Class, m.Sign = "bad", "✕"
	case "retrying", "retried", "warning", "paused", "partly paused", "no consumer", "PAUSED", "unknown", "stuck", "requeued", "stopping":
		m.Class, m.Sign = "warn", "!"
	case "running", "started", "received", "held", "progress", "RUNNING", "RUNQUEUED":
		m.Class, m.Sign = "busy", "▸"
	case "revoked", "CANCELLED", "skipped":
		m.Class, m.Sign = "off", "–"
	}
	return m
}

// eventState returns the state of a task or node after an event.
func eventState(kind string) string {
	return strings.TrimPrefix(strings.TrimPrefix(kind, "task-"), "worker-")
}

// workerState returns the state of a worker as a word.
func workerState(w inspect.Worker) string {
	switch {
	case w.Offline:
		return "offline"
	case w.Stopping:
		return "stopping"
	case quietWorker(w):
		return "paused"
	}
	return "online"
}

// quietWorker reports whether a consumer has paused all its queues.
func quietWorker(w inspect.Worker) bool {
	return len(w.Serves) > 0 && !slices.ContainsFunc(w.Serves, func(q inspect.ServedQueue) bool { return !q.Paused })
}

// queueState returns the state of a queue as a word.
func queueState(q inspect.Queue) string {
	switch {
	case q.Pause != nil, q.Paused > 0 && q.Paused >= q.Consumers:
		return "paused"
	case q.Paused > 0:
		return "partly paused"
	case q.Consumers == 0 && q.Ready > 0:
		return "no consumer"
	case q.Consumers == 0:
		return "idle"
	}
	return "ok"
}

// jobStates returns the states of jobs.
func jobStates() []string {
	return []string{"QUEUED", "RUNQUEUED", "RUNNING", "PAUSED", "WAITING", "FINISHED", "FAILED", "CANCELLED"}
}
