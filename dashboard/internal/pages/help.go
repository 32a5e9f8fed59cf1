package pages

import "github.com/swarmiji/swarmiji/inspect"

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
	case inspect.DoSetLimit:
		h.Link, h.LinkText = address("settings"), "Limits and pauses"
	case inspect.DoFindTask:
		h.Link, h.LinkText = link("task", "id", a.Task), "Look at the task"
	}
	return h
}
