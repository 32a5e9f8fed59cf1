package inspect

import (
	"strconv"

	"github.com/swarmiji/swarmiji/internal/cmdline"
	"github.com/swarmiji/swarmiji/task"
)

// Do is the kind of a change or of a suggested action. The values are part of the JSON form.
type Do string

// The kinds.
const (
	DoPauseTasks      Do = "pause-tasks"
	DoResumeTasks     Do = "resume-tasks"
	DoSetLimit        Do = "set-limit"
	DoServeQueue      Do = "serve-queue"
	DoPurgeQueue      Do = "purge-queue"
	DoPauseQueue      Do = "pause-queue"
	DoResumeQueue     Do = "resume-queue"
	DoCancelTask      Do = "cancel-task"
	DoRevokeTasks     Do = "revoke-tasks" // all tasks with a name or a header
	DoRunTask         Do = "run-task"
	DoCancelWorkflow  Do = "cancel-workflow"
	DoRetryWorkflow   Do = "retry-workflow"
	DoRequeueDead     Do = "requeue-dead"
	DoDropDead        Do = "drop-dead"
	DoExportDead      Do = "export-dead"
	DoImportDead      Do = "import-dead"
	DoAddSchedule     Do = "add-schedule"
	DoSyncSchedule    Do = "sync-schedule" // the entries of a group
	DoRunSchedule     Do = "run-schedule"
	DoPauseSchedule   Do = "pause-schedule"
	DoResumeSchedule  Do = "resume-schedule"
	DoRemoveSchedule  Do = "remove-schedule"
	DoCreateJob       Do = "create-job"
	DoRetryJobs       Do = "retry-jobs"
	DoCancelJobs      Do = "cancel-jobs"
	DoRemoveJobs      Do = "remove-jobs"
	DoPauseWorkers    Do = "pause-workers"
	DoResumeWorkers   Do = "resume-workers"
	DoScaleWorkers    Do = "scale-workers"
	DoLimitWorkers    Do = "limit-workers"
	DoStopWorkers     Do = "stop-workers"
	DoStartConsumer   Do = "start-consumer"   // for people: no call starts a process
	DoRegisterHandler Do = "register-handler" // for people: the program needs the handler
	DoFindTask        Do = "find-task"        // look at another task, which holds this one up
	DoAnswerTask      Do = "answer-task"      // give the answer that a task or job waits for
)

// Action is the one step that helps, for programs and for people.
type Action struct {
	Do Do `json:"do"`
	// Text is the step as a short English phrase.
	Text string `json:"text"`
	// Command is the same as a line of the program swarmiji. "": no command does it.
	Command string `json:"command,omitempty"`

	// The things that the step is about, as far as Do needs them.
	Queue string  `json:"queue,omitempty"`
	Task  task.ID `json:"task,omitempty"`
	Node  string  `json:"node,omitempty"`
	Job   int64   `json:"job,omitempty"`
	Name  string  `json:"name,omitempty"` // the name of a task
	Key   string  `json:"key,omitempty"`
}

// The actions that reasons suggest.

func resumeQueue(queue string) *Action {
	return &Action{Do: DoResumeQueue, Text: "resume the queue", Command: cmdline.Swarmiji("queue", "resume", queue), Queue: queue}
}

func resumeTasks(name string) *Action {
	return &Action{Do: DoResumeTasks, Text: "resume the tasks", Command: cmdline.Swarmiji("resume", "--task", name), Name: name}
}

func startConsumer(queue string) *Action {
	return &Action{Do: DoStartConsumer, Text: "start a consumer of queue " + queue, Queue: queue}
}

func registerHandler(name, queue string) *Action {
	return &Action{Do: DoRegisterHandler, Text: "start a consumer of queue " + queue + " that has a handler for " + name, Queue: queue, Name: name}
}

func scaleWorkers(queue string, workers int) *Action {
	return &Action{
		Do: DoScaleWorkers, Text: "give each consumer more workers", Command: cmdline.Swarmiji("scale", queue, strconv.Itoa(workers)), Queue: queue,
	}
}

func endQueueLimit(queue string) *Action {
	return &Action{Do: DoSetLimit, Text: "end the limit", Command: cmdline.Swarmiji("queue", "limit", queue), Queue: queue}
}

func endTaskLimit(name string) *Action {
	return &Action{Do: DoSetLimit, Text: "end the limit", Command: cmdline.Swarmiji("rate-limit", name), Name: name}
}

func cancelTask(id task.ID, queue string) *Action {
	args := []string{"task", "cancel", string(id)}
	if queue != "" {
		args = append(args, "--queue", queue)
	}
	return &Action{Do: DoCancelTask, Text: "cancel it if it must not run", Command: cmdline.Swarmiji(args...), Task: id, Queue: queue}
}

func requeueDead(id task.ID, queue string) *Action {
	return &Action{
		Do: DoRequeueDead, Text: "repair the cause, then run it again", Command: cmdline.Swarmiji("dead", "requeue", queue, "--id", string(id)), Task: id, Queue: queue,
	}
}

func findTask(id task.ID) *Action {
	return &Action{Do: DoFindTask, Text: "look at task " + string(id), Command: cmdline.Swarmiji("task", "show", string(id)), Task: id}
}

func answerTask(name, key string) *Action {
	return &Action{Do: DoAnswerTask, Text: "give the answer", Command: cmdline.Swarmiji("job", "complete", name, key), Name: name, Key: key}
}

func retryJob(id int64) *Action {
	return &Action{Do: DoRetryJobs, Text: "repair the cause, then run it again", Command: cmdline.Swarmiji("job", "retry", strconv.FormatInt(id, 10)), Job: id}
}
