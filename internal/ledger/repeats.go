package ledger

import "time"

// Fault is a period in which the broker may have taken back the tasks that a consumer held.
type Fault struct {
	Name     string
	By       string // the affected consumer; "": all consumers
	From, To time.Time
}

// ackTime limits how long after its end a task may still wait for its acknowledgement. Its result
// is stored before. On a busy machine that was seen to take longer than a second.
const ackTime = 3 * time.Second

// Resubmitted is the cause of a repeat whose task was submitted again.
const Resubmitted = "submitted again"

// Repeats counts the second and later starts of tasks by their cause. The cause is the first fault
// that affected the process of the previous start while that process held the task. Otherwise it is
// Resubmitted, once for each repeated submission. unexplained holds the tasks that have a repeat
// without a cause.
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

// cause returns the name of the fault that explains a start after an earlier one of the same task.
// It returns "" if no fault does.
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

// RepeatsExplained returns a rule: a task was started again only after a fault took it from its
// consumer, or after a repeated submission.
func RepeatsExplained(faults []Fault) Rule {
	return func(h History) []Violation {
		_, ts := h.Repeats(faults)
		return violations("a task was started again without a cause", ts)
	}
}
