package bursts

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Attempt is a message that a consumer has received.
type Attempt struct {
	ID   task.ID
	Name string
	Mark Mark
	Life int
}

// LeaseTime is the time after Keep when a task that was acknowledged before its start gives up its
// key.
const LeaseTime = leaseTime

// Step is the next step of a consumer with a message.
type Step int

// Steps of a consumer.
const (
	Start   Step = iota // start the task
	Replace             // replace the message by another one with Data, if there is any, after Delay
	Drop                // acknowledge the message: another one has the task
	// Revoke the task, unless its end is recorded: a newer task has the key, and the task was never
	// confirmed or has ended.
	Superseded
)

// Taken is the answer of Take.
type Taken struct {
	Step  Step
	Delay time.Duration
	Data  json.RawMessage // the newest submission; nil: the message has it
	Mark  Mark            // of the message that replaces this one
	// Alone says that the record does not know the task. The caller starts it only if its end is
	// not recorded.
	Alone bool
	// Ended is set with Drop if the task of WithLatest has ended. Call Finish: its consumer may
	// have died before it published the next task.
	Ended bool
}

// Take decides what to do with a message. A message that is delivered again gets an answer that
// leads to the same arguments, until its task has ended. Returns errors of the store.
func (s *Store) Take(ctx context.Context, a Attempt) (t Taken, err error) {
	_, err = s.change(ctx, a.Mark.storeKey(a.Name), nil, func(r *record, now time.Time) (change bool) {
		t, change = a.take(r, now)
		return change
	})
	return t, err
}

// take decides for a record, and reports whether it has changed it.
func (a *Attempt) take(r *record, now time.Time) (t Taken, change bool) {
	w, run, m := r.Wait, r.Run, &a.Mark
	switch {
	case w != nil && w.ID == a.ID:
		return a.takeWaiting(r, now)
	case run != nil && run.ID == a.ID && !(m.Latest && a.Life > run.Life):
		return a.takeAgain(run, now)
	case !m.Latest:
		return Taken{Alone: true}, false
	case run.active(now) && a.Life > 0: // requeued from the dead letters
		return Taken{Step: Replace, Delay: 5 * otherTime, Mark: m.again(m.Version)}, false
	case a.Life == 0 && (run != nil || w != nil): // it has ended, or was never confirmed
		return Taken{Step: Superseded}, false
	}
	r.Run = a.start(now)
	r.Run.Alone = true
	return Taken{Alone: true}, true
}

// start returns the record of a task that starts from this message.
func (a *Attempt) start(now time.Time) *running {
	return &running{ID: a.ID, Copy: a.Mark.Copy, Life: a.Life, Since: now.UnixMilli(), Ended: !a.Mark.Latest}
}

// takeWaiting decides for a message of the burst that waits.
func (a *Attempt) takeWaiting(r *record, now time.Time) (t Taken, change bool) {
	w, m := r.Wait, &a.Mark
	if r.Run.active(now) { // such as a message that a submission has sent again
		t = Taken{Step: Replace, Delay: otherTime, Mark: m.again(m.Version)}
		if w.Sent == 0 { // a guard: the end of the other task publishes the burst
			t.Delay = max(t.Delay, time.UnixMilli(r.Run.Until).Sub(now))
		}
		return t, false
	}
	newer := w.Version != m.Version && w.Data != nil
	if left := time.UnixMilli(w.Due).Sub(now); left > 0 && !m.Latest {
		t = Taken{Step: Replace, Delay: left, Mark: m.again(m.Version)}
		if newer {
			t.Data, t.Mark = w.Data, m.again(w.Version)
		}
		return t, false
	}
	r.Wait, r.Run = nil, a.start(now)
	if !newer {
		return Taken{}, true
	}
	t = Taken{Step: Replace, Data: w.Data, Mark: m.again(w.Version)}
	r.Run.Copy, r.Run.Heirs, r.Run.Data, r.Run.Version = "", []string{t.Mark.Copy}, w.Data, w.Version
	return t, true
}

// takeAgain decides for a message of the task that was taken last.
func (a *Attempt) takeAgain(run *running, now time.Time) (t Taken, change bool) {
	m := &a.Mark
	switch {
	case m.Latest && run.Ended:
		return Taken{Step: Drop, Ended: true}, false
	case run.Copy == m.Copy, slices.Contains(run.Heirs, m.Copy):
		change = m.Latest || run.Data != nil
		run.Copy = m.Copy
		run.dropHeirs()
		run.Since, run.Until = now.UnixMilli(), 0
		return Taken{Alone: run.Alone}, change // the answer of the first call may have been lost
	case run.Data != nil:
		// A process died, and no message with the arguments has come yet. A broker that compares ids may
		// drop the one that is published now. So each message is replaced until one has come.
		t = Taken{Step: Replace, Data: run.Data, Mark: m.again(run.Version)}
		run.Heirs = append(run.Heirs, t.Mark.Copy)
		return t, true
	}
	return Taken{Step: Drop}, false
}

// Keep begins or extends the lease of a task that is acknowledged before its start. Returns errors
// of the store.
func (s *Store) Keep(ctx context.Context, a Attempt) error {
	_, err := s.change(ctx, a.Mark.storeKey(a.Name), nil, func(r *record, now time.Time) bool {
		if r.Run == nil || r.Run.ID != a.ID || r.Run.Ended {
			return false
		}
		r.Run.Since, r.Run.Until = now.UnixMilli(), now.Add(leaseTime).UnixMilli()
		return true
	})
	return err
}

// Next is the submission that waits for the end of a task.
type Next struct {
	ID   task.ID
	Mark Mark
	Data json.RawMessage
}

// Finish ends a task of task.WithLatest. It returns the submission that waits for that, or nil if
// no submission waits. Publish it under its id, then call Followed. A repeated call returns the
// same submission until then. Returns errors of the store.
func (s *Store) Finish(ctx context.Context, a Attempt) (n *Next, err error) {
	_, err = s.change(ctx, a.Mark.storeKey(a.Name), nil, func(r *record, _ time.Time) bool {
		n = nil
		if r.Run == nil || r.Run.ID != a.ID {
			return false
		}
		if w := r.Wait; w != nil && w.Sent == 0 && w.Data != nil {
			n = &Next{ID: w.ID, Mark: a.Mark.again(w.Version), Data: w.Data}
		}
		change := !r.Run.Ended
		r.Run.Ended = true
		r.Run.dropHeirs()
		return change
	})
	return n, err
}

// Followed stores that the message of n is published. Returns errors of the store.
func (s *Store) Followed(ctx context.Context, a Attempt, n *Next) error {
	_, err := s.change(ctx, a.Mark.storeKey(a.Name), nil, func(r *record, now time.Time) bool {
		if r.Wait == nil || r.Wait.ID != n.ID || r.Wait.Sent != 0 {
			return false
		}
		r.Wait.Sent = now.UnixMilli()
		return true
	})
	return err
}
