package pages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// system is an API that returns hostile texts in all fields of all answers.
type system struct {
	mu      sync.Mutex
	changes []inspect.Do
	keys    []string // of the changes that have one
	counts  map[string]int
	waits   int // calls of ListEvents that wait
	events  []inspect.Event
	told    uint64 // events in all
	keep    int    // of events; 0: all
	more    chan struct{}
}

var _ inspect.API = (*system)(nil)

func hostile(t *testing.T) *system {
	t.Helper()
	return &system{counts: make(map[string]int), more: make(chan struct{})}
}

// fill returns a T with a value in each field.
func fill[T any]() (v T) {
	fillIn(reflect.ValueOf(&v).Elem())
	return v
}

func fillIn(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Now()))
		return
	case inspect.Do:
		v.SetString(string(inspect.DoRequeueDead))
		return
	case inspect.Outcome:
		v.SetString(string(inspect.Warn))
		return
	case json.RawMessage:
		text, _ := json.Marshal(evil)
		v.SetBytes(fmt.Appendf(nil, `{"big":9007199254740993,"text":%s}`, text))
		return
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{evil: evil}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Int64:
		v.SetInt(9007199254740993)
	case reflect.Uint64:
		v.SetUint(9007199254740993)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillIn(key)
		fillIn(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fillIn(v.Field(i))
		}
	}
}

// read counts a call and returns its answer.
func read[T any](s *system, name string) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
	return fill[T](), nil
}

// change notes a change, if it is not a dry run, and returns its report.
func (s *system) change(do inspect.Do, dry bool) (inspect.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !dry {
		s.changes = append(s.changes, do)
	}
	c := fill[inspect.Change]()
	c.Do = do
	return c, nil
}

// key notes the key of a change.
func (s *system) key(k string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, k)
}

func (s *system) made() []inspect.Do {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

func (s *system) reads(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)[name]
}

// subscriptions returns the number of calls that wait for events.
func (s *system) subscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// tell adds an event.
func (s *system) tell(kind, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told++
	s.events = append(s.events, inspect.Event{Seq: s.told, At: time.Now(), Type: kind, Task: task.ID("x"), Error: text})
	if s.keep > 0 && len(s.events) > s.keep {
		s.events = slices.Clone(s.events[1:])
	}
	close(s.more)
	s.more = make(chan struct{})
}

// after returns the events behind a cursor.
func (s *system) after(cursor string) (page inspect.EventPage, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page.Next = fmt.Sprint("c", s.told)
	n, gone := s.told, s.told-uint64(len(s.events))
	if cursor != "" {
		if _, err := fmt.Sscanf(cursor, "c%d", &n); err != nil || n < gone {
			page.Lost, n = true, max(n, gone)
		}
	}
	page.Events = slices.Clone(s.events[n-gone:])
	return page, s.more
}

// waiting adds to the number of waiting calls.
func (s *system) waiting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits += n
}

func (s *system) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	if q.Wait > 0 {
		s.waiting(1)
		defer s.waiting(-1)
	}
	for {
		page, more := s.after(q.Cursor)
		if len(page.Events) > 0 || page.Lost || q.Wait == 0 {
			return page, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return page, ctx.Err()
		}
	}
}

func (s *system) ListQueues(context.Context, inspect.QueueQuery) (inspect.QueuePage, error) {
	return read[inspect.QueuePage](s, "ListQueues")
}

func (s *system) GetQueue(context.Context, string) (inspect.Queue, error) {
	return read[inspect.Queue](s, "GetQueue")
}

func (s *system) ListKeys(context.Context, inspect.KeyQuery) (inspect.KeyPage, error) {
	return read[inspect.KeyPage](s, "ListKeys")
}

func (s *system) ListMessages(context.Context, inspect.MessageQuery) (inspect.MessagePage, error) {
	return read[inspect.MessagePage](s, "ListMessages")
}

func (s *system) PurgeQueue(_ context.Context, a inspect.Purge) (inspect.Change, error) {
	return s.change(inspect.DoPurgeQueue, a.DryRun)
}

func (s *system) PauseQueue(_ context.Context, _ inspect.Pause) (inspect.Change, error) {
	return s.change(inspect.DoPauseQueue, false)
}

func (s *system) ResumeQueue(_ context.Context, _ string) (inspect.Change, error) {
	return s.change(inspect.DoResumeQueue, false)
}

func (s *system) ListTasks(context.Context, inspect.TaskQuery) (inspect.TaskPage, error) {
	return read[inspect.TaskPage](s, "ListTasks")
}

func (s *system) CountTasks(context.Context, string) (inspect.Count, error) {
	return read[inspect.Count](s, "CountTasks")
}

func (s *system) ListRates(context.Context, inspect.RateQuery) (inspect.RatePage, error) {
	return read[inspect.RatePage](s, "ListRates")
}

func (s *system) GetTask(_ context.Context, k inspect.TaskKey) (inspect.TaskDetail, error) {
	d, err := read[inspect.TaskDetail](s, "GetTask")
	if len(k.Queues) > 0 {
		d.NotAgain = ""
	}
	return d, err
}

func (s *system) Why(context.Context, inspect.TaskKey) (inspect.Explanation, error) {
	return read[inspect.Explanation](s, "Why")
}

func (s *system) ListRunning(context.Context, inspect.RunningQuery) (inspect.RunningPage, error) {
	return read[inspect.RunningPage](s, "ListRunning")
}

func (s *system) CancelTask(_ context.Context, _ inspect.Cancel) (inspect.Change, error) {
	return s.change(inspect.DoCancelTask, false)
}

func (s *system) RunTask(_ context.Context, r inspect.TaskRun) (inspect.Change, error) {
	if len(r.Args) > 0 && !json.Valid(r.Args) {
		return inspect.Change{Do: inspect.DoRunTask}, &inspect.Error{Code: inspect.CodeInvalid, Text: "the arguments are no JSON"}
	}
	s.key(r.Key)
	return s.change(inspect.DoRunTask, false)
}

func (s *system) ListDead(context.Context, inspect.DeadQuery) (inspect.DeadPage, error) {
	return read[inspect.DeadPage](s, "ListDead")
}

func (s *system) SummarizeDead(context.Context, inspect.DeadCount) (inspect.DeadSummary, error) {
	return read[inspect.DeadSummary](s, "SummarizeDead")
}

func (s *system) GetDead(context.Context, inspect.DeadKey) (inspect.DeadLetter, error) {
	return read[inspect.DeadLetter](s, "GetDead")
}

func (s *system) RequeueDead(_ context.Context, a inspect.DeadChange) (inspect.Change, error) {
	return s.change(inspect.DoRequeueDead, a.DryRun)
}

func (s *system) DropDead(_ context.Context, a inspect.DeadChange) (inspect.Change, error) {
	return s.change(inspect.DoDropDead, a.DryRun)
}

func (s *system) ExportDead(context.Context, inspect.DeadQuery) (inspect.DeadExport, error) {
	return read[inspect.DeadExport](s, "ExportDead")
}

func (s *system) ListWorkflows(context.Context, inspect.WorkflowQuery) (inspect.WorkflowPage, error) {
	return read[inspect.WorkflowPage](s, "ListWorkflows")
}

func (s *system) GetWorkflow(context.Context, task.ID) (inspect.Workflow, error) {
	return read[inspect.Workflow](s, "GetWorkflow")
}

func (s *system) CancelWorkflow(_ context.Context, _ inspect.WorkflowCancel) (inspect.Change, error) {
	return s.change(inspect.DoCancelWorkflow, false)
}

func (s *system) RetryWorkflow(_ context.Context, _ inspect.WorkflowRetry) (inspect.Change, error) {
	return s.change(inspect.DoRetryWorkflow, false)
}

func (s *system) ListSchedules(context.Context, inspect.ScheduleQuery) (inspect.SchedulePage, error) {
	return read[inspect.SchedulePage](s, "ListSchedules")
}

func (s *system) GetSchedule(context.Context, inspect.ScheduleKey) (inspect.Schedule, error) {
	return read[inspect.Schedule](s, "GetSchedule")
}

func (s *system) RunSchedule(_ context.Context, r inspect.EntryRun) (inspect.Change, error) {
	s.key(r.Key)
	return s.change(inspect.DoRunSchedule, false)
}

func (s *system) PauseSchedule(_ context.Context, _ string) (inspect.Change, error) {
	return s.change(inspect.DoPauseSchedule, false)
}

func (s *system) ResumeSchedule(_ context.Context, _ string) (inspect.Change, error) {
	return s.change(inspect.DoResumeSchedule, false)
}

func (s *system) RemoveSchedule(_ context.Context, _ string) (inspect.Change, error) {
	return s.change(inspect.DoRemoveSchedule, false)
}

func (s *system) ListJobs(context.Context, inspect.JobQuery) (inspect.JobPage, error) {
	return read[inspect.JobPage](s, "ListJobs")
}

func (s *system) GetJob(context.Context, int64) (inspect.JobDetail, error) {
	return read[inspect.JobDetail](s, "GetJob")
}

func (s *system) WhyJob(context.Context, int64) (inspect.Explanation, error) {
	return read[inspect.Explanation](s, "WhyJob")
}

func (s *system) RetryJobs(_ context.Context, _ inspect.JobChange) (inspect.Change, error) {
	return s.change(inspect.DoRetryJobs, false)
}

func (s *system) CancelJobs(_ context.Context, _ inspect.JobChange) (inspect.Change, error) {
	return s.change(inspect.DoCancelJobs, false)
}

func (s *system) RemoveJobs(_ context.Context, _ inspect.JobChange) (inspect.Change, error) {
	return s.change(inspect.DoRemoveJobs, false)
}

func (s *system) ListWorkers(context.Context, inspect.WorkerQuery) (inspect.WorkerPage, error) {
	return read[inspect.WorkerPage](s, "ListWorkers")
}

func (s *system) GetWorker(context.Context, string) (inspect.Worker, error) {
	return read[inspect.Worker](s, "GetWorker")
}

func (s *system) PauseWorkers(_ context.Context, _ inspect.Target) (inspect.Change, error) {
	return s.change(inspect.DoPauseWorkers, false)
}

func (s *system) ResumeWorkers(_ context.Context, _ inspect.Target) (inspect.Change, error) {
	return s.change(inspect.DoResumeWorkers, false)
}

func (s *system) ScaleWorkers(_ context.Context, _ inspect.Scale) (inspect.Change, error) {
	return s.change(inspect.DoScaleWorkers, false)
}

func (s *system) LimitWorkers(_ context.Context, _ inspect.RateLimit) (inspect.Change, error) {
	return s.change(inspect.DoLimitWorkers, false)
}

func (s *system) StopWorkers(_ context.Context, _ inspect.Stop) (inspect.Change, error) {
	return s.change(inspect.DoStopWorkers, false)
}

func (s *system) ListSettings(context.Context, inspect.SettingsQuery) (inspect.SettingsPage, error) {
	return read[inspect.SettingsPage](s, "ListSettings")
}

func (s *system) PauseTasks(_ context.Context, _ inspect.TaskPause) (inspect.Change, error) {
	return s.change(inspect.DoPauseTasks, false)
}

func (s *system) ResumeTasks(_ context.Context, _ string) (inspect.Change, error) {
	return s.change(inspect.DoResumeTasks, false)
}

func (s *system) ServeQueue(context.Context, inspect.Serve) (inspect.Change, error) {
	return s.change(inspect.DoServeQueue, false)
}

func (s *system) SetLimit(_ context.Context, _ inspect.Limit) (inspect.Change, error) {
	return s.change(inspect.DoSetLimit, false)
}

func (s *system) ListAudit(context.Context, inspect.AuditQuery) (inspect.AuditPage, error) {
	return read[inspect.AuditPage](s, "ListAudit")
}

func (s *system) Check(context.Context, inspect.CheckQuery) (inspect.Report, error) {
	return read[inspect.Report](s, "Check")
}
