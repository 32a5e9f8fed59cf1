package ledger

import "time"

// Fault is a time in which the broker may have taken back what a consumer held.
type Fault struct {
	Name     string
	By       string // the consumer that it hit; "": all of them
	From, To time.Time
}

// ackTime is how long after its end a task may still wait for its acknowledgement.
const ackTime = time.Second

// Resubmitted is the cause of a repeat whose submission was repeated.
const Resubmitted = "submitted again"

// Repeats counts the second and later starts of tasks by their cause. It is the first of the faults
// that hit the process of the start before while that held the task, or Resubmitted. unexplained are
// the tasks with a repeat that has no cause.
func (h History) Repeats(faults []Fault) (causes map[string]int, unexplained []*Task) {
	causes = make(map[string]int)
	for _, t := range h.Repeated(Started) {
		again := t.Count(Submitted) - 1
		var before *Line
		known := true
		for i := range t.Lines {
			l := &t.Lines[i]
			if l.Event != Started {
				continue
			}
			if before != nil {
				cause := t.cause(before, l, faults)
				if cause == "" && again > 0 {
					again--
					cause = Resubmitted
				}
				causes[cause]++
				known = known && cause != ""
			}
			before = l
		}
		if !known {
			unexplained = append(unexplained, t)
		}
	}
	delete(causes, "")
	return causes, unexplained
}

// cause returns the fault that explains a start after another one of the same task, "" for none.
func (t *Task) cause(start, next *Line, faults []Fault) string {
	until := next.At
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.Event == Finished && l.By == start.By && !l.At.Before(start.At) {
			until = l.At.Add(ackTime)
			break
		}
	}
	for _, f := range faults {
		if (f.By == "" || f.By == start.By) && !f.From.After(until) && !f.To.Before(start.At) {
			return f.Name
		}
	}
	return ""
}

// RepeatsExplained says: nothing was started again but what a fault took from its consumer, or what
// was submitted again.
func RepeatsExplained(faults []Fault) Rule {
	return func(h History) []Violation {
		_, ts := h.Repeats(faults)
		return violations("a task was started again without a cause", ts)
	}
}
