package pages

import (
	"context"
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// action is one kind of change that a page offers.
type action struct {
	title  string // in the imperative, for the page that asks and for the result
	target string // the field with the name of the thing; "a b": the first of these that is set
	danger bool   // something is lost
	// asks reports whether a page of its own asks first, and typed whether the name of the target
	// must be typed there. nil: never.
	asks, typed func(*fields) bool
	counts      bool // it can count the matching records
	// whole reports whether one change takes all matching records. nil: it takes inspect.MaxBulk.
	whole func(*fields) bool
	once  bool // a form sent twice makes the change once: it has the field "key"
	// edit returns the text that the user may edit before the change, as the field "args". "": none.
	// nil: nothing is edited.
	edit func(ctx context.Context, api inspect.API, f *fields) (string, error)
	call func(f *fields, dry bool) call
}

// call is a call of a method of the API with its argument.
type call func(context.Context, inspect.API) (inspect.Change, error)

// with returns the call of a method.
func with[A any](method func(inspect.API, context.Context, A) (inspect.Change, error), arg A) call {
	return func(ctx context.Context, api inspect.API) (inspect.Change, error) { return method(api, ctx, arg) }
}

// fields are the fields of a form.
type fields struct {
	url.Values
	err error // of a field that cannot be read
}

// text returns a field without blanks around it.
func (f *fields) text(name string) string { return strings.TrimSpace(f.Get(name)) }

// number returns a field that is a number. "" is 0.
func (f *fields) number(name string) int {
	text := f.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		f.err = &inspect.Error{Code: inspect.CodeInvalid, Text: "The field " + name + " is not a number"}
	}
	return n
}

// until returns the end of a pause: now and the duration of the field "for". With "" the pause has
// no end.
func (f *fields) until() time.Time {
	text := f.text("for")
	if text == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		f.err = &inspect.Error{Code: inspect.CodeInvalid, Text: "The duration of the pause is not one such as 30m or 2h"}
		return time.Time{}
	}
	return time.Now().Add(d)
}

// list returns a field as a list of at most one text.
func (f *fields) list(name string) []string {
	if text := f.text(name); text != "" {
		return []string{text}
	}
	return nil
}

// dead returns the filter of the fields.
func (f *fields) dead() inspect.DeadFilter {
	d := inspect.DeadFilter{Queue: f.text("queue"), Name: f.text("name"), Root: task.ID(f.text("root")), Error: f.Get("error")}
	if id := f.text("id"); id != "" {
		d.IDs = []task.ID{task.ID(id)}
	}
	return d
}

// job returns the job of the field "job".
func (f *fields) job() inspect.JobChange {
	id, err := strconv.ParseInt(f.text("job"), 10, 64)
	if err != nil {
		f.err = &inspect.Error{Code: inspect.CodeInvalid, Text: "The id of the job is not a number"}
	}
	return inspect.JobChange{IDs: []int64{id}}
}

// consumers returns the consumers of the fields "node" and "queue".
func (f *fields) consumers() inspect.Target {
	return inspect.Target{Nodes: f.list("node"), Queues: f.list("queue")}
}

// targetOf returns the name of the changed thing.
func (a *action) targetOf(f *fields) string {
	for name := range strings.FieldsSeq(a.target) {
		if text := f.text(name); text != "" {
			return text
		}
	}
	return ""
}

func always(*fields) bool { return true }

// arguments returns the original arguments of the task of the fields. Arguments that are hidden, or
// have no form as JSON, are not edited.
func arguments(ctx context.Context, api inspect.API, f *fields) (string, error) {
	d, err := api.GetTask(ctx, inspect.TaskKey{ID: task.ID(f.text("id")), Queues: f.list("queue"), Args: true})
	if err == nil && d.NotAgain != "" {
		err = &inspect.Error{Code: inspect.CodeConflict, Text: "This task cannot run again: " + d.NotAgain}
	}
	return indent(d.Original), err
}

// several reports whether the fields may select more than one dead letter, and entire whether they
// select all of a queue without a filter.
func several(f *fields) bool { return f.text("id") == "" }

func entire(f *fields) bool {
	return reflect.DeepEqual(f.dead(), inspect.DeadFilter{Queue: f.text("queue")})
}

// actions returns what pages offer.
func actions() map[inspect.Do]action {
	return map[inspect.Do]action{
		inspect.DoPauseQueue: {title: "Pause the queue", target: "queue", call: func(f *fields, _ bool) call {
			return with(inspect.API.PauseQueue, inspect.Pause{Queue: f.text("queue"), Until: f.until(), Reason: f.text("reason")})
		}},
		inspect.DoResumeQueue: {title: "Resume the queue", target: "queue", call: func(f *fields, _ bool) call {
			return with(inspect.API.ResumeQueue, f.text("queue"))
		}},
		inspect.DoPurgeQueue: {title: "Purge the queue", target: "queue", danger: true, asks: always, typed: always, counts: true, whole: always, call: func(f *fields, dry bool) call {
			return with(inspect.API.PurgeQueue, inspect.Purge{Queue: f.text("queue"), DryRun: dry})
		}},

		inspect.DoCancelTask: {title: "Cancel the task", target: "id", asks: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.CancelTask, inspect.Cancel{ID: task.ID(f.text("id")), Queues: f.list("queue"), Terminate: f.text("terminate") != ""})
		}},
		inspect.DoRunTask: {title: "Run the task again", target: "id", asks: always, once: true, edit: arguments, call: func(f *fields, _ bool) call {
			if f.Has("args") && f.text("args") == "" {
				return func(context.Context, inspect.API) (inspect.Change, error) {
					return inspect.Change{}, &inspect.Error{Code: inspect.CodeInvalid, Text: "The arguments are empty, which is not JSON"}
				}
			}
			return with(inspect.API.RunTask, inspect.TaskRun{ID: task.ID(f.text("id")), Queues: f.list("queue"), Args: json.RawMessage(f.text("args")), Key: f.Get("key")})
		}},
		inspect.DoRequeueDead: {title: "Requeue dead letters", target: "queue", asks: several, counts: true, call: func(f *fields, dry bool) call {
			return with(inspect.API.RequeueDead, inspect.DeadChange{DeadFilter: f.dead(), DryRun: dry})
		}},
		inspect.DoDropDead: {title: "Drop dead letters", target: "queue", danger: true, asks: always, typed: several, counts: true, whole: entire, call: func(f *fields, dry bool) call {
			return with(inspect.API.DropDead, inspect.DeadChange{DeadFilter: f.dead(), DryRun: dry, Confirm: f.text("typed")})
		}},
		inspect.DoCancelWorkflow: {title: "Cancel the workflow", target: "root", asks: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.CancelWorkflow, inspect.WorkflowCancel{Root: task.ID(f.text("root"))})
		}},
		inspect.DoRetryWorkflow: {title: "Retry the failed steps of the workflow", target: "root", call: func(f *fields, _ bool) call {
			return with(inspect.API.RetryWorkflow, inspect.WorkflowRetry{Root: task.ID(f.text("root"))})
		}},

		inspect.DoRunSchedule: {title: "Run the entry now", target: "id", once: true, call: func(f *fields, _ bool) call {
			return with(inspect.API.RunSchedule, inspect.EntryRun{ID: f.text("id"), Key: f.Get("key")})
		}},
		inspect.DoPauseSchedule: {title: "Pause the entry", target: "id", call: func(f *fields, _ bool) call {
			return with(inspect.API.PauseSchedule, f.text("id"))
		}},
		inspect.DoResumeSchedule: {title: "Resume the entry", target: "id", call: func(f *fields, _ bool) call {
			return with(inspect.API.ResumeSchedule, f.text("id"))
		}},
		inspect.DoRemoveSchedule: {title: "Remove the entry", target: "id", danger: true, asks: always, typed: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.RemoveSchedule, f.text("id"))
		}},

		inspect.DoRetryJobs: {title: "Run the job again", target: "job", call: func(f *fields, _ bool) call {
			return with(inspect.API.RetryJobs, f.job())
		}},
		inspect.DoCancelJobs: {title: "Cancel the job", target: "job", asks: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.CancelJobs, f.job())
		}},
		inspect.DoRemoveJobs: {title: "Remove the job", target: "job", danger: true, asks: always, typed: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.RemoveJobs, f.job())
		}},

		inspect.DoPauseWorkers: {title: "Let the consumer take no new task", target: "node", call: func(f *fields, _ bool) call {
			return with(inspect.API.PauseWorkers, f.consumers())
		}},
		inspect.DoResumeWorkers: {title: "Let the consumer take tasks again", target: "node", call: func(f *fields, _ bool) call {
			return with(inspect.API.ResumeWorkers, f.consumers())
		}},
		inspect.DoScaleWorkers: {title: "Set the number of workers", target: "queue", call: func(f *fields, _ bool) call {
			return with(inspect.API.ScaleWorkers, inspect.Scale{Queue: f.text("queue"), Workers: f.number("workers"), Nodes: f.list("node")})
		}},
		inspect.DoLimitWorkers: {title: "Limit the starts of tasks in the consumer", target: "name", call: func(f *fields, _ bool) call {
			return with(inspect.API.LimitWorkers, inspect.RateLimit{Target: f.consumers(), Name: f.text("name"), Rate: f.text("rate")})
		}},
		inspect.DoStopWorkers: {title: "Stop the consumer", target: "node", danger: true, asks: always, typed: always, call: func(f *fields, _ bool) call {
			return with(inspect.API.StopWorkers, inspect.Stop{Target: f.consumers(), Kill: f.text("kill") != ""})
		}},

		inspect.DoPauseTasks: {title: "Pause the tasks of the name", target: "name", call: func(f *fields, _ bool) call {
			return with(inspect.API.PauseTasks, inspect.TaskPause{Name: f.text("name"), Until: f.until(), Reason: f.text("reason")})
		}},
		inspect.DoResumeTasks: {title: "Resume the tasks of the name", target: "name", call: func(f *fields, _ bool) call {
			return with(inspect.API.ResumeTasks, f.text("name"))
		}},
		inspect.DoSetLimit: {title: "Set the limit", target: "queue name", call: func(f *fields, _ bool) call {
			return with(inspect.API.SetLimit, inspect.Limit{Queue: f.text("queue"), Name: f.text("name"), Rate: f.text("rate"), Concurrency: f.number("concurrency")})
		}},
	}
}
