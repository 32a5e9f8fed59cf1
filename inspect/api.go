package inspect

import (
	"context"

	"github.com/swarmiji/swarmiji/task"
)

// API shows a running system and changes it. Implementations are safe for concurrent use. See the
// package comment for the rules of all methods.
type API interface {
	Queues
	Tasks
	Dead
	Workflows
	Schedules
	Jobs
	Workers
	Events
	Settings
	Audit
	Health
}

// Queues shows and changes the queues of the broker.
type Queues interface {
	// ListQueues returns the known queues in the order of their names: those of the broker if it can
	// list them, those of consumers that answer or send heartbeats, and "default" if it exists.
	ListQueues(ctx context.Context, q QueueQuery) (QueuePage, error)
	// GetQueue returns one queue. Returns [ErrNotFound] if it does not exist.
	GetQueue(ctx context.Context, name string) (Queue, error)
	// ListMessages returns the messages of a queue that wait, are delayed, held or dead, without their
	// arguments. Returns [ErrUnsupported] for a place that the broker cannot show.
	ListMessages(ctx context.Context, q MessageQuery) (MessagePage, error)
	// ListKeys returns the fairness keys of a fair queue that have tasks, in the order of their bytes.
	// Returns [ErrInvalid] for a queue that is not fair.
	ListKeys(ctx context.Context, q KeyQuery) (KeyPage, error)
	// PurgeQueue removes the messages that wait in a queue. Held, delayed and dead messages stay. The
	// tasks get no record.
	PurgeQueue(ctx context.Context, p Purge) (Change, error)
	// PauseQueue stops all consumers from taking tasks of a queue. Running tasks continue. A queue
	// that does not exist may be paused. A note then says that it is not known.
	PauseQueue(ctx context.Context, p Pause) (Change, error)
	// ResumeQueue ends the pause of a queue: the stored one, and those of running consumers by a
	// command. Change.Stored says that there was a stored one.
	ResumeQueue(ctx context.Context, queue string) (Change, error)
}

// Tasks shows tasks, cancels them and runs them again.
type Tasks interface {
	// ListTasks returns the tasks of the history that match a query, those that changed last first.
	// See history.Parse for the language.
	ListTasks(ctx context.Context, q TaskQuery) (TaskPage, error)
	// CountTasks counts the tasks of the history that match a query. It stops at 10,000, or when
	// 50,000 index entries were examined.
	CountTasks(ctx context.Context, query string) (Count, error)
	// ListRates returns the counts of the history in each of the last minutes, the oldest first. The
	// last one is the current minute.
	ListRates(ctx context.Context, q RateQuery) (RatePage, error)
	// GetTask returns everything that is known of a task. Returns [ErrNotFound] if no part knows it.
	GetTask(ctx context.Context, k TaskKey) (TaskDetail, error)
	// Why explains where a task is and why it waits. For a task that no part knows it returns a reason
	// of [KindUnknown] and no error.
	Why(ctx context.Context, k TaskKey) (Explanation, error)
	// ListRunning returns the tasks that consumers run or have fetched, the oldest of each consumer
	// first. A consumer shows at most 1,000 of each kind; RunningPage.More counts the others.
	ListRunning(ctx context.Context, q RunningQuery) (RunningPage, error)
	// CancelTask keeps a task from starting, as package revoke does. Change.Outcome is "noted" if
	// consumers will skip it, and "removed" if its message was also removed. It is [OutcomeUnknown] if
	// no part knows the task; Change.Notes then name the parts that could not be asked. A broker that
	// cannot find messages may have it: the outcome is "noted". Returns [ErrNoConsumer] if no running
	// consumer listens. In all these cases the revocation is stored.
	CancelTask(ctx context.Context, c Cancel) (Change, error)
	// RunTask submits a copy of a task under a new id, Change.Copy, with the original arguments or
	// edited ones. The copy has the name, metadata and headers of the original. It starts at once,
	// does not expire, and belongs to no workflow. The original stays as it is. Calls with the same
	// TaskRun.Key submit one copy.
	//
	// It needs the message of the original: a dead letter, a waiting or delayed task, or an ended one
	// that the history has kept (events.Report.KeepArguments). Returns [ErrConflict] without one, and
	// for tasks that are sealed or have conditions. Returns [ErrInvalid] for edited arguments that are
	// not valid JSON. After another error the copy may have been submitted.
	//
	// With TaskRun.Now it makes the task itself due, and no copy. Returns [ErrConflict] if the task
	// does not wait for its time, [ErrUnsupported] if the broker cannot change waiting messages.
	RunTask(ctx context.Context, r TaskRun) (Change, error)
}

// Dead shows and changes dead letters.
type Dead interface {
	// ListDead returns the dead letters that match, the oldest first. Letters that are removed
	// meanwhile shift the later pages.
	ListDead(ctx context.Context, q DeadQuery) (DeadPage, error)
	// SummarizeDead counts the dead letters that match, by name and by reason. It stops at
	// DeadCount.Limit.
	SummarizeDead(ctx context.Context, d DeadCount) (DeadSummary, error)
	// GetDead returns the newest dead letter of a task. Returns [ErrNotFound] if it has no dead
	// letter. Its arguments are those of the message, in which no secret is hidden.
	GetDead(ctx context.Context, k DeadKey) (DeadLetter, error)
	// RequeueDead puts dead letters back into their queue, where a new life of their tasks begins.
	// Refused letters stay, and Change.Problems names them.
	RequeueDead(ctx context.Context, c DeadChange) (Change, error)
	// DropDead deletes dead letters for good. Without a limit and with the queue alone it deletes all
	// letters of the queue in one call. Returns [ErrInvalid] for letters that are not named by their
	// ids if DeadChange.Confirm is not the name of the queue: a pattern may match more than was meant.
	DropDead(ctx context.Context, c DeadChange) (Change, error)
	// ExportDead returns dead letters byte for byte, in the form of deadletter.Letters.Export.
	ExportDead(ctx context.Context, q DeadQuery) (DeadExport, error)
}

// Workflows shows and changes workflows. The id of a workflow is that of its root: the task that
// was submitted, or for a composed one its last step.
type Workflows interface {
	// ListWorkflows returns the workflows of which the history has a task other than the last step,
	// those whose tasks changed last first. A change of the last step alone does not move a workflow.
	// One that changes while the list is read may be missing; it is at the beginning then.
	ListWorkflows(ctx context.Context, q WorkflowQuery) (WorkflowPage, error)
	// GetWorkflow returns the steps of a workflow. Returns [ErrNotFound] if none is known.
	GetWorkflow(ctx context.Context, root task.ID) (Workflow, error)
	// CancelWorkflow cancels a workflow as revoke.Revoker.Cancel does: no consumer of Change.Nodes
	// starts a task of it any more. Returns [ErrNoConsumer] if no running consumer has answered; the
	// cancel is stored nevertheless.
	CancelWorkflow(ctx context.Context, w WorkflowCancel) (Change, error)
	// RetryWorkflow runs the failed steps of a workflow again, as deadletter.Letters.Retry does. Tasks
	// that have succeeded do not run again. Returns [ErrConflict] if it cannot be retried.
	RetryWorkflow(ctx context.Context, r WorkflowRetry) (Change, error)
}

// Schedules shows and changes the entries of a schedule.
type Schedules interface {
	// ListSchedules returns the entries, those that run next first. It reads all entries.
	ListSchedules(ctx context.Context, q ScheduleQuery) (SchedulePage, error)
	// GetSchedule returns an entry with its next runs. Returns [ErrNotFound] if it does not exist.
	GetSchedule(ctx context.Context, k ScheduleKey) (Schedule, error)
	// RunSchedule adds a copy of the entry that is due at once. Change.Copy is the id of the copy.
	// Calls with the same EntryRun.Key add one copy.
	RunSchedule(ctx context.Context, r EntryRun) (Change, error)
	// PauseSchedule stops an entry from running until it is resumed.
	PauseSchedule(ctx context.Context, id string) (Change, error)
	// ResumeSchedule ends the pause of an entry. Change.At is its next run. Zero: it has no
	// further run.
	ResumeSchedule(ctx context.Context, id string) (Change, error)
	// RemoveSchedule deletes an entry. Returns [ErrNotFound] if it does not exist.
	RemoveSchedule(ctx context.Context, id string) (Change, error)
}

// Jobs shows and changes jobs of a database.
type Jobs interface {
	// ListJobs returns the jobs that match, in the order of their ids, without their data.
	ListJobs(ctx context.Context, q JobQuery) (JobPage, error)
	// GetJob returns a job with its data, which may hold secrets, and its first children.
	GetJob(ctx context.Context, id int64) (JobDetail, error)
	// WhyJob explains why a job does not run, or describes its run.
	WhyJob(ctx context.Context, id int64) (Explanation, error)
	// RetryJobs lets jobs run again, all of them or none. Without Force it refuses jobs that run,
	// await an answer or are FINISHED, with [ErrConflict].
	RetryJobs(ctx context.Context, c JobChange) (Change, error)
	// CancelJobs makes jobs CANCELLED, one after the other, and stops at the first refused one.
	CancelJobs(ctx context.Context, c JobChange) (Change, error)
	// RemoveJobs deletes jobs, one after the other, and stops at the first refused one. Without Force
	// it refuses jobs that run, are PAUSED or have children. With Force it cancels and deletes these
	// too, and their children first.
	RemoveJobs(ctx context.Context, c JobChange) (Change, error)
}

// Workers shows consumers and producers, and commands consumers. A command reaches the consumers
// that run now. It lasts until they restart. Returns [ErrNoConsumer] if none answers. Errors of
// single consumers are in Change.Nodes.
type Workers interface {
	// ListWorkers returns the consumers and producers that answer or send heartbeats, in the order of
	// their ids.
	ListWorkers(ctx context.Context, q WorkerQuery) (WorkerPage, error)
	// GetWorker returns a consumer or producer. Returns [ErrNotFound] if it is silent.
	GetWorker(ctx context.Context, node string) (Worker, error)
	// PauseWorkers stops consumers from taking tasks of queues. Without Queues it is called quiet: the
	// consumers take no new task at all.
	PauseWorkers(ctx context.Context, t Target) (Change, error)
	// ResumeWorkers ends the pause of consumers.
	ResumeWorkers(ctx context.Context, t Target) (Change, error)
	// ScaleWorkers sets how many tasks of a queue run at the same time in each consumer.
	ScaleWorkers(ctx context.Context, s Scale) (Change, error)
	// LimitWorkers sets how often tasks of a name start in each consumer.
	LimitWorkers(ctx context.Context, l RateLimit) (Change, error)
	// StopWorkers stops consumers as a signal does. It does not wait for their end.
	StopWorkers(ctx context.Context, s Stop) (Change, error)
}

// Events shows events.
type Events interface {
	// ListEvents returns the events after q.Cursor, the oldest first. It waits up to q.Wait for one.
	// Without a cursor it returns no event and the cursor of the present.
	ListEvents(ctx context.Context, q EventQuery) (EventPage, error)
}

// Settings shows and changes the stored operations of tasks, see package settings. All consumers
// that use the store obey them, also those that start later. PauseQueue and ResumeQueue belong to
// it too.
type Settings interface {
	// ListSettings returns all stored pauses, limits and breakers.
	ListSettings(ctx context.Context, q SettingsQuery) (SettingsPage, error)
	// PauseTasks stops the tasks of a name in all queues. Their messages wait aside.
	PauseTasks(ctx context.Context, p TaskPause) (Change, error)
	// ResumeTasks ends the pause of the tasks of a name, and resets their breaker. Change.Done is 0 if
	// neither was set.
	ResumeTasks(ctx context.Context, name string) (Change, error)
	// SetLimit limits the tasks of a queue or of a name. A limit without Rate and Concurrency is
	// removed. As for PauseQueue, a note names a queue that is not known.
	SetLimit(ctx context.Context, l Limit) (Change, error)
	// ServeQueue makes the consumers of a group serve a queue, or leave it. It holds for consumers
	// that start later, too.
	ServeQueue(ctx context.Context, s Serve) (Change, error)
}

// Audit shows the changes that were made by an [API].
type Audit interface {
	// ListAudit returns the newest changes, the newest first. It publishes nothing.
	ListAudit(ctx context.Context, q AuditQuery) (AuditPage, error)
}

// Health checks a set-up for problems.
type Health interface {
	// Check examines servers, queues and consumers. It changes no queue. A failed check is a finding
	// and no error.
	Check(ctx context.Context, q CheckQuery) (Report, error)
}
