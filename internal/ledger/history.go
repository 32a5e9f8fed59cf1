package ledger

import (
	"fmt"
	"maps"
	"slices"
)

// Task holds a ledger's lines about one task.
type Task struct {
	ID    string
	Lines []Line // in the order of the ledger
}

// Count returns the number of lines with the event.
func (t *Task) Count(e Event) int {
	n := 0
	for _, l := range t.Lines {
		if l.Event == e {
			n++
		}
	}
	return n
}

// String returns the task's id and its events in order, for a message. An event with a time has the
// seconds since the first one: "started+0.1s".
func (t *Task) String() string {
	s := t.ID + ":"
	for _, l := range t.Lines {
		s += " " + string(l.Event)
		if since := l.At.Sub(t.Lines[0].At); !l.At.IsZero() && since > 0 {
			s += fmt.Sprintf("+%.1fs", since.Seconds())
		}
	}
	return s
}

// History is a ledger grouped by task id.
type History map[string]*Task

// NewHistory groups lines by task.
func NewHistory(lines []Line) History {
	h := make(History)
	for _, l := range lines {
		t := h[l.ID]
		if t == nil {
			t = &Task{ID: l.ID}
			h[l.ID] = t
		}
		t.Lines = append(t.Lines, l)
	}
	return h
}

// Load reads a ledger and groups it by task. Its errors are those of [Read].
func Load(path string) (History, error) {
	lines, err := Read(path)
	if err != nil {
		return nil, err
	}
	return NewHistory(lines), nil
}

// Tasks returns the tasks that have the event, sorted by id.
func (h History) Tasks(e Event) []*Task {
	var ts []*Task
	for _, id := range slices.Sorted(maps.Keys(h)) {
		if t := h[id]; t.Count(e) > 0 {
			ts = append(ts, t)
		}
	}
	return ts
}

// Repeated returns the tasks that have the event more than once, sorted by id.
func (h History) Repeated(e Event) []*Task {
	return slices.DeleteFunc(h.Tasks(e), func(t *Task) bool { return t.Count(e) < 2 })
}

// Open returns the tasks that were started more often than they finished, sorted by id. They run
// now, or their process died.
func (h History) Open() []*Task {
	return slices.DeleteFunc(h.Tasks(Started), func(t *Task) bool { return t.Count(Started) <= t.Count(Finished) })
}

// Lacking returns the tasks that have one event and not the other, sorted by id.
func (h History) Lacking(have, lack Event) []*Task {
	return slices.DeleteFunc(h.Tasks(have), func(t *Task) bool { return t.Count(lack) > 0 })
}

// Rule returns the tasks of a history that break it. A rule applies to the end of a run, when the
// queue is empty.
type Rule func(h History) []Violation

// Violation is a task that broke a rule.
type Violation struct {
	Rule string
	Task *Task
}

// String returns the rule and the task.
func (v Violation) String() string { return fmt.Sprintf("%s: %v", v.Rule, v.Task) }

// Check returns the violations of all the rules, in the order of the rules.
func (h History) Check(rules ...Rule) []Violation {
	var vs []Violation
	for _, r := range rules {
		vs = append(vs, r(h)...)
	}
	return vs
}

// violations returns a violation of the rule for each task of ts.
func violations(rule string, ts []*Task) []Violation {
	vs := make([]Violation, len(ts))
	for i, t := range ts {
		vs[i] = Violation{rule, t}
	}
	return vs
}

// NoLoss is a rule: every confirmed task has finished or was revoked.
func NoLoss(h History) []Violation {
	lost := slices.DeleteFunc(h.Lacking(Confirmed, Finished), func(t *Task) bool { return t.Count(Revoked) > 0 })
	return violations("a confirmed task never finished", lost)
}

// NoRepeat is a rule: no task was started twice.
func NoRepeat(h History) []Violation {
	return violations("a task was started more than once", h.Repeated(Started))
}

// NoGhosts is a rule: a task that was refused never ran, and every task that ran had been submitted
// before.
func NoGhosts(h History) []Violation {
	var ghosts []*Task
	for _, t := range h.Tasks(Started) {
		first := slices.IndexFunc(t.Lines, func(l Line) bool { return l.Event == Started || l.Event == Submitted })
		if t.Lines[first].Event == Started || t.Count(Failed) > 0 {
			ghosts = append(ghosts, t)
		}
	}
	return violations("a task ran that was refused, or that nobody had submitted", ghosts)
}

// Results is a rule: each confirmed task has exactly one result, and it comes after the task first
// finished.
func Results(h History) []Violation {
	var bad []*Task
	for _, t := range h.Tasks(Confirmed) {
		finished := slices.IndexFunc(t.Lines, func(l Line) bool { return l.Event == Finished })
		result := slices.IndexFunc(t.Lines, func(l Line) bool { return l.Event == Result })
		if t.Count(Result) != 1 || finished < 0 || result < finished {
			bad = append(bad, t)
		}
	}
	return violations("a confirmed task has not one result, after its run", bad)
}

// RepeatsOnlyOf returns a rule: only the given tasks were started twice.
func RepeatsOnlyOf(allowed map[string]bool) Rule {
	return func(h History) []Violation {
		ts := slices.DeleteFunc(h.Repeated(Started), func(t *Task) bool { return allowed[t.ID] })
		return violations("a task was started again that no dead process had held", ts)
	}
}
