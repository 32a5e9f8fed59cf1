package ledger

import "time"

// Ends counts the confirmed tasks that run at most once by the way they ended.
type Ends struct {
	Finished  int // finished at least once
	Uncertain int // dead-lettered and not finished
	Died      int // neither: the process that had taken the task was killed
}

// deathTime limits how long before its death a killed process may have taken a task that leaves no
// other trace. A broker that is down delays the task's dead letter for as long.
const deathTime = 30 * time.Second

// Ends counts the confirmed tasks by the way they ended. died holds the time at which each killed
// process was killed. lost holds the tasks that ended in no known way.
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

// diedWith reports whether the last process that took or started the task was killed within
// deathTime after that.
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

// EndsForSure returns a rule: each confirmed task has finished, is a dead letter, or was taken by a
// process that was killed.
func EndsForSure(died map[string]time.Time) Rule {
	return func(h History) []Violation {
		_, lost := h.Ends(died)
		return violations("a task that runs at most once is lost", lost)
	}
}

// OnlyTakenAreDead is a rule: a consumer had taken every task that is a dead letter.
func OnlyTakenAreDead(h History) []Violation {
	return violations("a task is a dead letter that no worker had taken", h.Lacking(Dead, Taken))
}
