package events

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// The rules of this file apply to the codec and to the bus in memory, so that both deliver the same
// events.

// Further limits beside those of event.go, in bytes.
const (
	maxType   = 64       // Type
	maxLabel  = 256      // NodeID, Name, Queue, Exchange, RoutingKey
	maxKey    = 128      // a name in Fields
	maxFields = 16 << 10 // all Fields: the lengths of all names and texts, and 16 for each value
	maxDepth  = 8        // nesting of lists and maps in Fields
)

// latest is the end of the year 9999 in milliseconds since 1970, the last time that RFC 3339 can
// write.
const latest = 253402300799999

// fieldSet is a set of the fields that only some types have.
type fieldSet uint16

const (
	hasTask fieldSet = 1 << iota // name, args, retries, queue
	hasRoute
	hasPID
	hasRun
	hasResult
	hasError
	hasWorker
)

// fieldsOf returns the groups of fields that events of a type have in addition to type, task-id,
// node-id, timestamp and Fields.
func fieldsOf(typ string) fieldSet {
	switch typ {
	case TaskSent:
		return hasTask | hasRoute
	case TaskReceived:
		return hasTask
	case TaskStarted:
		return hasPID
	case TaskSucceeded:
		return hasRun | hasResult
	case TaskFailed:
		return hasRun | hasError
	case WorkerOnline, WorkerHeartbeat, WorkerOffline:
		return hasWorker
	}
	return 0
}

// standard reports whether name is the wire name of a field of Event, whatever the type of the
// event.
func standard(name string) bool {
	switch name {
	case "type", "task-id", "node-id", "timestamp", "name", "args", "retries", "queue", "exchange", "routing_key",
		"pid", "runtime-ms", "pool-ms", "result", "exception", "stack-trace", "retry":
		return true
	}
	return false
}

// check returns ErrMalformed if the Type or the TaskID of e is invalid, so that e cannot be sent.
func (e *Event) check() error {
	if len(e.Type) > maxType || !naming.ValidID(e.Type) {
		return fmt.Errorf("%w: the type %q is not 1 to %d visible ASCII characters", ErrMalformed, cut(e.Type, maxType), maxType)
	}
	if e.TaskID != "" && !naming.ValidID(string(e.TaskID)) {
		return fmt.Errorf("%w: the task id is not 1 to 128 visible ASCII characters", ErrMalformed)
	}
	return nil
}

// Normalize changes e to the form in which listeners receive it, which equals Decode of Encode:
//
//   - Fields that do not belong to its type are zero.
//   - Texts are valid UTF-8 and cut to their limits. The limit is 256 bytes if the field names
//     none.
//   - Time is in UTC and whole milliseconds. It is zero if it lies before 1970 or after 9999.
//   - Counts and durations are not negative.
//   - Fields is a copy in the types of JSON: nil, bool, float64, string, []any, map[string]any. It
//     has no names of other fields and no values that JSON cannot hold. It is cut to about 16 KiB
//     by removing the last names first.
//
// Returns [ErrMalformed] and leaves e unchanged if Type is not 1 to 64 visible ASCII characters or
// TaskID is invalid.
func Normalize(e *Event) error {
	if err := e.check(); err != nil {
		return err
	}
	has := fieldsOf(e.Type)
	e.Fields = normalFields(e.Type, e.Fields)
	e.NodeID, e.Time = cut(e.NodeID, maxLabel), fromMillis(toMillis(e.Time))
	if has&hasTask != 0 {
		e.Name, e.Args, e.Queue, e.Retries = cut(e.Name, maxLabel), cut(e.Args, MaxPreview), cut(e.Queue, maxLabel), count(e.Retries)
	} else {
		e.Name, e.Args, e.Queue, e.Retries = "", "", "", 0
	}
	if has&hasRoute != 0 {
		e.Exchange, e.RoutingKey = cut(e.Exchange, maxLabel), cut(e.RoutingKey, maxLabel)
	} else {
		e.Exchange, e.RoutingKey = "", ""
	}
	if e.PID = count(e.PID); has&hasPID == 0 {
		e.PID = 0
	}
	if e.Runtime, e.Pool = max(e.Runtime, 0), max(e.Pool, 0); has&hasRun == 0 {
		e.Runtime, e.Pool = 0, 0
	}
	if has&hasResult != 0 {
		e.Result = cut(e.Result, MaxPreview)
	} else {
		e.Result = ""
	}
	if has&hasError != 0 {
		e.Exception, e.Stack = cut(e.Exception, MaxText), cut(e.Stack, MaxText)
	} else {
		e.Exception, e.Stack, e.Retry = "", "", false
	}
	if has&hasWorker != 0 {
		e.Worker = normalWorker(e.Worker)
	} else {
		e.Worker = nil
	}
	return nil
}

// cut calls [utf.Cut] and copies a result that was cut, so that it does not hold the memory of the
// whole text.
func cut(s string, limit int) string {
	short := utf.Cut(s, limit)
	if len(s) > limit {
		return strings.Clone(short)
	}
	return short
}

// toMillis returns t in milliseconds since 1970. It returns 0, which stands for the zero time,
// for a time before 1970 or after the year 9999.
func toMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if ms < 0 || ms > latest {
		return 0
	}
	return ms
}

// fromMillis returns the time of ms in UTC, the zero time for 0.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// count returns n limited to the range of counts on the wire: 0 to 2^31-1.
func count(n int) int { return min(max(n, 0), math.MaxInt32) }

// normalFields returns a copy of m with only the fields that an event of type typ may carry. Left
// out are names of standard fields, invalid names, and values that JSON cannot hold. In the order
// of the names, a field that would exceed maxFields is left out too. It returns nil if no field
// remains.
func normalFields(typ string, m map[string]any) map[string]any {
	if len(m) == 0 {
		return nil
	}
	budget, worker := maxFields, ofWorker(typ)
	var out map[string]any
	for _, k := range sortedKeys(m) {
		if standard(k) || worker && workerField(k) || !validKey(k) {
			continue
		}
		left := budget - len(k)
		v, ok := normalValue(m[k], 1, &left)
		if !ok || left < 0 {
			continue
		}
		if out == nil {
			out = make(map[string]any, len(m))
		}
		out[k], budget = v, left
	}
	return out
}

// validKey reports whether k may be the name of a field: 1 to maxKey bytes of valid UTF-8.
func validKey(k string) bool { return k != "" && len(k) <= maxKey && utf8.ValidString(k) }

// sortedKeys returns the keys of m in ascending order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// normalValue returns a copy of v in the types of JSON and subtracts its size from budget. It cuts
// texts to MaxText. A value of another type is converted with encoding/json. ok is false if v has
// no such form, is nested deeper than maxDepth, has an invalid key, or exceeds the budget.
func normalValue(v any, depth int, budget *int) (_ any, ok bool) {
	if *budget -= 16; *budget < 0 {
		return nil, false
	}
	switch v := v.(type) {
	case nil, bool:
		return v, true
	case string:
		s := cut(v, MaxText)
		*budget -= len(s)
		return s, *budget >= 0
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case float32:
		return float64(v), !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case int32:
		return float64(v), true
	case uint64:
		return float64(v), true
	case uint32:
		return float64(v), true
	case []any:
		if depth > maxDepth {
			return nil, false
		}
		list := make([]any, 0, min(len(v), *budget/16))
		for _, x := range v {
			n, ok := normalValue(x, depth+1, budget)
			if !ok {
				return nil, false
			}
			list = append(list, n)
		}
		return list, true
	case map[string]any:
		if depth > maxDepth {
			return nil, false
		}
		m := make(map[string]any)
		for _, k := range sortedKeys(v) {
			if !validKey(k) {
				return nil, false
			}
			*budget -= len(k)
			n, ok := normalValue(v[k], depth+1, budget)
			if !ok {
				return nil, false
			}
			m[k] = n
		}
		return m, true
	}
	*budget += 16 // the recursive call subtracts it again
	decoded, ok := throughJSON(v)
	if !ok {
		return nil, false
	}
	return normalValue(decoded, depth, budget)
}

// throughJSON marshals v with encoding/json and returns the decoded result. ok is false if that
// fails, panics or is too large.
func throughJSON(v any) (decoded any, ok bool) {
	defer func() {
		if recover() != nil { // from a MarshalJSON; an event must not fail a task
			decoded, ok = nil, false
		}
	}()
	data, err := json.Marshal(v)
	if err != nil || len(data) > 6*maxFields { // an escape has at most six bytes
		return nil, false
	}
	s := scanner{data: data}
	decoded, err = s.value(1)
	return decoded, err == nil
}
