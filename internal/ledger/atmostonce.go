package ledger

import "time"

// Ends counts how confirmed tasks that run at most once have ended.
type Ends struct {
	Finished  int // once
	Uncertain int // among the dead letters, not finished
	Died      int // neither: the process that had taken the task was killed
}

// deathTime is how long before its death a process may have taken a task of which it leaves no
// trace. A broker that is away delays the dead letter of a task for as long.
const deathTime = 30 * time.Second

// Ends counts the confirmed tasks by their ends. died holds the processes that were killed, and
// when. The tasks of no such end are lost.
func (h History) Ends(died map[string]time.Time) (ends Ends, lost []*Task) {
	for _, t := range h.Tasks(Confirmed) {
		switch {
		case t.Count(Finished) > 0:
			ends.Finished++
		case t.Count(Dead) > 0:
			ends.Uncertain++
		case t.diedWith(died):
			ends.Died++
		default:
			lost = append(lost, t)
		}
	}
	return ends, lost
}

// diedWith reports whether the last process that took the task was killed soon after.
func (t *Task) diedWith(died map[string]time.Time) bool {
	var last *Line
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Event == Taken || l.Event == Started {
			last = l
		}
	}
	if last == nil {
		return false
	}
	at, ok := died[last.By]
	return ok && !at.Before(last.At) && at.Sub(last.At) < deathTime
}

// EndsForSure says: each confirmed task has finished, is a dead letter, or was taken by a process
// that was killed.
func EndsForSure(died map[string]time.Time) Rule {
	return func(h History) []Violation {
		_, lost := h.Ends(died)
		return violations("a task that runs at most once is lost", lost)
	}
}

// OnlyTakenAreDead says: nothing is a dead letter that no consumer had taken.
func OnlyTakenAreDead(h History) []Violation {
	return violations("a task is a dead letter that no worker had taken", h.Lacking(Dead, Taken))
}
