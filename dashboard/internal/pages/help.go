package pages

import (
	"slices"

	"github.com/swarmiji/swarmiji/inspect"
)

// reasonsView holds the data of the template "why".
type reasonsView struct {
	View *view
	Why  inspect.Explanation
}

// runsView holds the data of the template "running".
type runsView struct {
	View *view
	Page inspect.RunningPage
}

// help is an action that helps: a button, a page, or its text alone.
type help struct {
	Action         *inspect.Action
	Button         *button
	Link, LinkText string
}

// helpOf returns the help of a reason.
func helpOf(v *view, a *inspect.Action) help {
	h := help{Action: a}
	offer := func(label string, params ...any) {
		b := do(v, a.Do, label, params...)
		h.Button = &b
	}
	switch a.Do {
	case inspect.DoResumeQueue:
		offer("Resume", "queue", a.Queue)
	case inspect.DoResumeTasks:
		offer("Resume", "name", a.Name)
	case inspect.DoRequeueDead:
		offer("Requeue", "queue", a.Queue, "id", a.Task)
	case inspect.DoCancelTask:
		offer("Cancel", "id", a.Task, "queue", a.Queue)
	case inspect.DoRetryJobs:
		offer("Run again", "job", a.Job)
	case inspect.DoScaleWorkers, inspect.DoStartConsumer, inspect.DoRegisterHandler:
		if a.Queue != "" {
			h.Link, h.LinkText = link("queue", "name", a.Queue), "Look at the queue"
		}
	case inspect.DoFindTask:
		h.Link, h.LinkText = link("task", "id", a.Task), "Look at the task"
	}
	return h
}

// workerState returns the state of a worker as a word.
func workerState(w inspect.Worker) string {
	switch {
	case w.Offline:
		return "offline"
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
