package events

import (
	"encoding/base64"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// MaxOriginal limits TaskInfo.Original, in bytes. Longer ones are not sent. In base64 it has
// MaxText bytes.
const MaxOriginal = MaxText / 4 * 3

// Limits of TaskInfo.Headers.
const (
	MaxHeaders     = 16  // headers of a task in an event
	MaxHeaderValue = 256 // bytes of such a header's value
)

// Names of TaskInfo in Event.Fields. The names are part of the wire format.
const (
	fieldParent     = "parent"
	fieldRoot       = "root"
	fieldGroup      = "group"
	fieldHeaders    = "headers"
	fieldLife       = "life"
	fieldGeneration = "generation"
	fieldAttempt    = "attempt"
	fieldDue        = "due"
	fieldClass      = "class"
	fieldDeadLetter = "dead_letter"
	fieldOriginal   = "original"      // base64
	fieldType       = "original_type" // media type
)

// TaskInfo holds further facts about the task of an event. They travel in Event.Fields. A fact with
// its zero value is not sent. For a plain task in its first attempt all are zero.
type TaskInfo struct {
	Parent task.ID // sent, received: the task that sent this one
	// sent, received: the first task of the workflow; "": the task itself
	Root    task.ID
	Group   task.ID           // sent, received: the group of the task
	Headers map[string]string // sent, received: headers that Report.Headers selects
	Due     time.Time         // sent: the task does not start before; milliseconds on the wire

	Life       int // how often the dead letter of the task was requeued
	Generation int // number of copies made of the task, see DESIGN.md
	Attempt    int // number of the attempt, from 1; 0 counts as 1

	// failed: the kind of the error, such as "swarmiji.TimeLimit", see task.RemoteError; "": not known
	Class      string
	DeadLetter bool // failed: the task is a dead letter now

	// received: the task in the form in which a history keeps it, and the media type of that form, see
	// Report.KeepArguments; nil: not kept
	Original     []byte
	OriginalType string
}

// Info returns the facts about a task in transit, with the headers that r selects.
func (r *Report) Info(e *task.Envelope) TaskInfo {
	i := TaskInfo{
		Parent: e.Parent, Group: e.Group, Due: e.Meta.NotBefore.Or(time.Time{}),
		Life: e.Life, Attempt: e.Retries + 1,
	}
	if e.Root != e.ID {
		i.Root = e.Root
	}
	if len(e.Headers) == 0 {
		return i
	}
	for _, k := range r.Headers[:min(len(r.Headers), MaxHeaders)] {
		if v, ok := e.Headers[k]; ok {
			if i.Headers == nil {
				i.Headers = make(map[string]string)
			}
			i.Headers[k] = v
		}
	}
	return i
}

// Fields adds the facts to m, which it returns. A nil m is made if there is a fact. The caller sets
// Event.Fields to the result.
func (i TaskInfo) Fields(m map[string]any) map[string]any {
	set := func(has bool, name string, v any) {
		if !has {
			return
		}
		if m == nil {
			m = make(map[string]any)
		}
		m[name] = v
	}
	set(i.Parent != "", fieldParent, string(i.Parent))
	set(i.Root != "", fieldRoot, string(i.Root))
	set(i.Group != "", fieldGroup, string(i.Group))
	if len(i.Headers) > 0 {
		h := make(map[string]any, len(i.Headers))
		for k, v := range i.Headers {
			h[k] = utf.Cut(v, MaxHeaderValue)
		}
		set(true, fieldHeaders, h)
	}
	set(toMillis(i.Due) != 0, fieldDue, float64(toMillis(i.Due)))
	set(i.Life > 0, fieldLife, i.Life)
	set(i.Generation > 0, fieldGeneration, i.Generation)
	set(i.Attempt > 1, fieldAttempt, i.Attempt)
	set(i.Class != "", fieldClass, utf.Cut(i.Class, maxLabel))
	set(i.DeadLetter, fieldDeadLetter, true)
	if len(i.Original) > 0 && len(i.Original) <= MaxOriginal && i.OriginalType != "" {
		set(true, fieldOriginal, base64.StdEncoding.EncodeToString(i.Original))
		set(true, fieldType, i.OriginalType)
	}
	return m
}

// Info returns the facts in the Fields of a received event. A value of a wrong type or out of range
// counts as absent, and further headers than [MaxHeaders] are left out. Attempt is at least 1.
func (e *Event) Info() TaskInfo {
	i := TaskInfo{Attempt: 1}
	if len(e.Fields) == 0 {
		return i
	}
	id := func(name string) task.ID {
		s, _ := e.Fields[name].(string)
		if task.ID(s).Check() != nil {
			return ""
		}
		return task.ID(s)
	}
	number := func(name string, most float64) int64 {
		f, _ := e.Fields[name].(float64)
		if !(f > 0 && f <= most) {
			return 0
		}
		return int64(f)
	}
	i.Parent, i.Root, i.Group = id(fieldParent), id(fieldRoot), id(fieldGroup)
	i.Life, i.Generation = int(number(fieldLife, maxNumber)), int(number(fieldGeneration, maxNumber))
	i.Attempt = max(1, int(number(fieldAttempt, maxNumber)))
	i.Due = fromMillis(number(fieldDue, latest))
	class, _ := e.Fields[fieldClass].(string)
	i.Class = cut(class, maxLabel)
	i.DeadLetter, _ = e.Fields[fieldDeadLetter].(bool)
	if h, ok := e.Fields[fieldHeaders].(map[string]any); ok {
		i.Headers = texts(h)
	}
	original, _ := e.Fields[fieldOriginal].(string)
	typ, _ := e.Fields[fieldType].(string)
	if data, err := base64.StdEncoding.DecodeString(original); err == nil && len(data) > 0 && len(data) <= MaxOriginal && typ != "" {
		i.Original, i.OriginalType = data, cut(typ, maxLabel)
	}
	return i
}

// DropOriginal removes Original from the Fields of an event, for readers that may not see
// arguments. It changes m.
func DropOriginal(m map[string]any) {
	delete(m, fieldOriginal)
	delete(m, fieldType)
}

// maxNumber limits the counts of a TaskInfo.
const maxNumber = 1<<31 - 1

// texts returns the first MaxHeaders texts of a map, in the order of their names, or nil.
func texts(m map[string]any) map[string]string {
	var out map[string]string
	for _, k := range sortedKeys(m) {
		v, ok := m[k].(string)
		if !ok || len(out) == MaxHeaders {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[k] = cut(v, MaxHeaderValue)
	}
	return out
}
