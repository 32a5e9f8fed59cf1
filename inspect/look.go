package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/original"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// deadTime limits the search of dead letters for one task.
const deadTime = 5 * time.Second

// sighting holds the facts that the parts know of one task.
type sighting struct {
	id      task.ID
	hint    string // the caller's name of the task; ""
	now     time.Time
	record  *resultstore.Record // nil: no record
	history *history.Record     // nil: no record of the history
	// running is the task in a consumer, held if it has not started. nil: no consumer shows it.
	running *RunningTask
	held    bool
	// message is the waiting message with its queue, and envelope the decoded message. nil: not
	// found, or the message cannot be read.
	message  *broker.Outgoing
	queue    string
	envelope *task.Envelope
	original *original.Original // of message, dead or history; nil: not known
	dead     *DeadLetter
	deferral *jobstore.Deferral // the wait for an answer; nil: it does not wait
	job      *jobs.Row          // the job of a task with conditions; nil: unknown
	census   *census            // nil: the consumers were not asked
	searched []string           // the queues in which the message was searched
	found    []string
	notes    []string
}

// notef adds a note about a part that could not be asked.
func (s *sighting) notef(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// name returns the name of the task, as far as it is known.
func (s *sighting) name() string {
	switch {
	case s.record != nil && s.record.Name != "":
		return s.record.Name
	case s.envelope != nil && s.envelope.Name != "":
		return s.envelope.Name
	case s.running != nil:
		return s.running.Name
	case s.history != nil && s.history.Name != "":
		return s.history.Name
	case s.dead != nil:
		return s.dead.Name
	case s.deferral != nil:
		return s.deferral.Name
	case s.job != nil:
		return s.job.Name
	}
	return s.hint
}

// look asks the parts for a task, one after the other. It ends early when the task's place is
// known. Returns the errors of parts that could not answer.
func (l *Local) look(ctx context.Context, k TaskKey) (*sighting, error) {
	if err := k.ID.Check(); err != nil {
		return nil, wrapped(err)
	}
	for _, q := range k.Queues {
		if err := task.CheckName(q); err != nil {
			return nil, wrapped(err)
		}
	}
	s := &sighting{id: k.ID, hint: k.Name, now: time.Now(), found: []string{}}
	if err := l.lookRecord(ctx, s); err != nil {
		return nil, wrapped(err)
	}
	if err := l.lookHistory(ctx, s); err != nil {
		return nil, wrapped(err)
	}
	over := s.record != nil && s.record.State.Terminal()
	if over && s.record.State != task.StateFailed && s.record.State != task.StateExpired {
		return s, nil
	}
	if !over {
		if err := l.lookJobs(ctx, s); err != nil {
			return nil, wrapped(err)
		}
		if s.deferral != nil || s.job != nil && !s.job.State.Over() && !s.job.State.Runs() {
			return s, nil
		}
	}
	var err error
	if s.census, err = l.consumers(ctx); err != nil {
		return nil, err
	}
	s.searched = k.Queues
	if len(s.searched) == 0 && s.history != nil && s.history.Queue != "" {
		s.searched, s.queue = []string{s.history.Queue}, s.history.Queue
	}
	if len(s.searched) == 0 {
		if s.searched, err = l.names(ctx, s.census); err != nil {
			return nil, wrapped(err)
		}
	}
	if !over {
		if err := l.lookQueues(ctx, s); err != nil || s.message != nil {
			return s, wrapped(err)
		}
		if err := l.lookConsumers(ctx, s); err != nil || s.running != nil {
			return s, wrapped(err)
		}
	}
	return s, wrapped(l.lookDead(ctx, s))
}

// lookRecord reads the record of the task.
func (l *Local) lookRecord(ctx context.Context, s *sighting) error {
	switch {
	case l.cfg.Results == nil:
		s.notef("no result store is given")
		return nil
	case resultstore.RepliesOnly(l.cfg.Results):
		s.notef("results go only to the programs that submitted their tasks; a result store, named by results= in the URL, keeps them")
		return nil
	}
	stores := []resultstore.ResultStore{l.cfg.Results}
	for _, store := range l.cfg.Stores {
		stores = append(stores, store)
	}
	for _, store := range stores {
		r, err := store.Load(ctx, s.id)
		if errors.Is(err, resultstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := l.codec.OpenRecord(&r); err != nil {
			s.notef("the record cannot be opened: %v", err)
		}
		s.record, s.found = &r, append(s.found, "record")
		return nil
	}
	return nil
}

// lookJobs reads the deferral of the task, and the job of a task with conditions.
func (l *Local) lookJobs(ctx context.Context, s *sighting) error {
	if l.cfg.Jobs == nil {
		return nil
	}
	return l.cfg.Jobs.Store().View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		ds, err := tx.Deferrals(ctx, s.id)
		if err != nil {
			return err
		}
		if len(ds) > 0 && (ds[0].Phase == jobstore.DeferralAwaiting || ds[0].Phase == jobstore.DeferralDecided) {
			s.deferral, s.found = &ds[0], append(s.found, "deferral")
			return nil
		}
		if s.name() == "" {
			return nil // the job of a task is found by its name
		}
		rows, err := tx.OfKey(ctx, s.name(), jobs.KeyOfTask(s.id), jobstore.Page{Limit: 1})
		if err == nil && len(rows) > 0 {
			s.job, s.found = &rows[0], append(s.found, "job")
		}
		return err
	})
}

// lookQueues searches the waiting message in the queues.
func (l *Local) lookQueues(ctx context.Context, s *sighting) error {
	finder, ok := capability.As[broker.Finder](l.cfg.Broker)
	if !ok {
		s.notef("this broker cannot find a waiting message by its id")
		return nil
	}
	for _, q := range s.searched {
		out, err := finder.Find(ctx, q, string(s.id))
		switch {
		case errors.Is(err, broker.ErrNotFound), errors.Is(err, broker.ErrNoQueue):
			continue
		case err != nil:
			return err
		}
		s.message, s.queue, s.found = &out, q, append(s.found, "queue")
		s.original = original.Read(l.codec, q, out.Message)
		if e, _, err := l.codec.Decode(out.Message); err == nil {
			s.envelope = e
		} else {
			s.notef("the message cannot be read: %v", err)
		}
		return nil
	}
	return nil
}

// lookConsumers asks the consumers that answer for the task. Those that do not answer in time are
// left out.
func (l *Local) lookConsumers(ctx context.Context, s *sighting) error {
	if l.cfg.Control == nil || s.census == nil || len(s.census.replies) == 0 {
		s.notef("no consumer answers, so that running tasks are not known")
		return nil
	}
	if n := s.census.quiet(); n > 0 {
		s.notef("%d consumers do not answer commands, so that their running tasks are not known", n)
	}
	var queues []string // all: a consumer that has left a queue may still run its tasks
	if s.history != nil && s.history.State.Terminal() {
		queues = s.searched
	}
	for some := range slices.Chunk(s.census.answering(queues), 64) { // control.MaxTargets
		for _, held := range []bool{false, true} {
			page, err := l.ListRunning(ctx, RunningQuery{Nodes: some, Held: held})
			if err != nil && CodeOf(err) != CodeNoConsumer {
				return err
			}
			if page.More > 0 {
				s.notef("%d tasks of consumers are not shown", page.More)
			}
			i := slices.IndexFunc(page.Tasks, func(t RunningTask) bool { return t.ID == s.id })
			if i >= 0 {
				s.running, s.held, s.queue, s.found = &page.Tasks[i], held, page.Tasks[i].Queue, append(s.found, "consumer")
				return nil
			}
		}
	}
	return nil
}

// lookDead searches the newest dead letter of the task in the queues.
func (l *Local) lookDead(ctx context.Context, s *sighting) error {
	if l.letters == nil {
		s.notef("the dead letters of this broker cannot be read")
		return nil
	}
	searching, cancel := context.WithTimeout(ctx, deadTime)
	defer cancel()
	for _, q := range s.searched {
		err := l.letters.List(searching, q, deadletter.Filter{IDs: []task.ID{s.id}}, func(letter *deadletter.Letter) bool {
			d := deadLetter(letter, true, false)
			s.dead, s.queue, s.envelope = &d, q, letter.Task
			s.original = original.Read(l.codec, q, letter.Message)
			return true
		})
		switch {
		case errors.Is(err, broker.ErrNoQueue):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case searching.Err() != nil:
			s.notef("the dead letters are too many to search in %v", deadTime)
			return nil
		case err != nil:
			return err
		}
		if s.dead != nil {
			s.found = append(s.found, "dead")
			return nil
		}
	}
	return nil
}

// GetTask implements [Tasks].
func (l *Local) GetTask(ctx context.Context, k TaskKey) (TaskDetail, error) {
	s, err := l.look(ctx, k)
	if err != nil {
		return TaskDetail{}, err
	}
	d := s.detail()
	if d.NotAgain = s.notAgain(); k.Args && d.NotAgain == "" {
		d.Original = s.original.Args
	}
	if len(d.Found) == 0 {
		return d, errorf(CodeNotFound, "no part knows task %s; it was never submitted, or its record has expired, or its queue was not searched", k.ID)
	}
	return d, nil
}

// detail returns the task as the parts know it.
func (s *sighting) detail() TaskDetail {
	d := TaskDetail{Found: s.found, Notes: s.notes, Dead: s.dead}
	t := &d.Task
	t.ID, t.Name, t.Queue, t.State = s.id, s.name(), s.queue, s.state()
	if r := s.record; r != nil {
		t.Attempt, t.Node, t.Started, t.Ended = r.Retries+1, r.NodeID, r.StartedAt, r.FinishedAt
		d.Correlation = r.Correlation
		if p := r.Progress; !p.IsZero() {
			d.Progress = &Progress{Done: int64(p.Done), Total: int64(p.Total), Note: p.Note, At: utc(p.At)}
		}
		if !r.StartedAt.IsZero() && r.FinishedAt.After(r.StartedAt) {
			t.Run = Duration(r.FinishedAt.Sub(r.StartedAt))
		}
		if r.Error != nil {
			t.Error, t.Class = r.Error.Error(), r.Error.Type
		}
	}
	if e := s.envelope; e != nil {
		t.Sent, t.Parent, t.Root, t.Group, t.Attempt = e.SentAt, e.Parent, e.RootID(), e.Group, max(t.Attempt, e.Retries+1)
		d.Headers, d.Correlation = e.Headers, e.Correlation
	}
	if s.message != nil {
		m := s.message.Message
		t.Due, t.Priority, t.Key, t.Weight = s.message.At, m.Priority, m.Key, m.Weight
	}
	if r := s.running; r != nil {
		t.Node, t.Attempt = r.Node, r.Attempt
		if !s.held {
			t.Started, t.Ended, t.Run = r.Since, time.Time{}, 0
		}
	}
	if s.history != nil {
		d.addHistory(s.history)
	}
	if s.dead != nil {
		d.Stack = s.dead.Stack
		if t.Error == "" {
			t.Error = s.dead.Reason
		}
	}
	return d
}

// state returns the state of the task.
func (s *sighting) state() State {
	switch {
	case s.running != nil && s.held:
		return StateHeld
	case s.running != nil:
		return StateRunning
	case s.dead != nil:
		return StateDead
	case s.deferral != nil:
		return State(task.StateAwaiting)
	case s.message != nil && s.record != nil && s.record.State == task.StateRetrying:
		return State(task.StateRetrying)
	case s.message != nil && s.message.At.After(s.now):
		return StateDelayed
	case s.message != nil, s.job != nil && s.record == nil:
		return StateWaiting
	case s.record != nil:
		return State(s.record.State)
	case s.history != nil:
		return taskOf(s.history).State
	}
	return StateUnknown
}
