package events

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/keyset"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// This file says what of an Event travels; the codec and the bus in memory share it, so that both behave alike.

// Limits beside those of event.go, in bytes.
const (
	maxType   = 64       // Type
	maxLabel  = 256      // NodeID, Name, Queue, Exchange, RoutingKey
	maxKey    = 128      // a name in Fields
	maxFields = 16 << 10 // all of Fields: every name and text by its length, every value 16 beside
	maxDepth  = 8        // of lists and maps inside Fields
)

// latest is the end of the year 9999, in milliseconds since the epoch: what RFC 3339 can still write.
const latest = 253402300799999

// set is a set of the fields that only some types have.
type set uint16

const (
	hasTask set = 1 << iota // name, args, retries, queue
	hasRoute
	hasPID
	hasRun
	hasResult
	hasError
	hasWorker
)

// fieldsOf returns what events of a type have beside type, task-id, node-id, timestamp and Fields.
func fieldsOf(typ string) set {
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

// standard reports whether a name belongs to an Event's own fields on the wire, whatever its type.
func standard(name string) bool {
	switch name {
	case "type", "task-id", "node-id", "timestamp", "name", "args", "retries", "queue", "exchange", "routing_key",
		"pid", "runtime-ms", "pool-ms", "result", "exception", "stack-trace", "retry":
		return true
	}
	return false
}

// check returns an error that wraps ErrMalformed when e cannot travel at all.
func (e *Event) check() error {
	if len(e.Type) > maxType || !keyset.ValidID(e.Type) {
		return fmt.Errorf("%w: type %q (want 1 to %d visible ASCII characters)", ErrMalformed, cut(e.Type, maxType), maxType)
	}
	if e.TaskID != "" && !keyset.ValidID(string(e.TaskID)) {
		return fmt.Errorf("%w: bad task id", ErrMalformed)
	}
	return nil
}

// Normalize makes e what a listener gets of it: Decode of Encode gives the same. The fields that do not belong to its type
// are zero; texts are valid UTF-8 and cut to their limits (256 bytes where the field names none); Time is in UTC, whole
// milliseconds, and zero where it lies before 1970 or after 9999; counts and durations are not negative. Fields is a copy
// in the types of JSON (nil, bool, float64, string, []any, map[string]any) without the names of other fields and without
// what JSON cannot hold; it is cut to about 16 KiB by leaving fields out, the last names first. The error wraps
// [ErrMalformed]: e has no Type of 1 to 64 visible ASCII characters, or a TaskID that is none; e is then as it
// was.
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

// cut is [utf.Cut] with a copy of what is cut, so that a long text is not kept for its beginning.
func cut(s string, limit int) string {
	short := utf.Cut(s, limit)
	if len(s) > limit {
		return strings.Clone(short)
	}
	return short
}

func toMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if ms < 0 || ms > latest {
		return 0
	}
	return ms
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func count(n int) int { return min(max(n, 0), math.MaxInt32) }

// normalFields copies what of m may travel in an event of a type.
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

func validKey(k string) bool { return k != "" && len(k) <= maxKey && utf8.ValidString(k) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// normalValue returns v in the types of JSON, and takes its size from budget. ok is false when v cannot be had so, lies
// too deep, or no budget is left.
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
	*budget += 16 // the next round takes it
	decoded, ok := throughJSON(v)
	if !ok {
		return nil, false
	}
	return normalValue(decoded, depth, budget)
}

// throughJSON gives what encoding/json makes of a value of any other type.
func throughJSON(v any) (decoded any, ok bool) {
	defer func() {
		if recover() != nil { // from a MarshalJSON; an event must not fail a task
			decoded, ok = nil, false
		}
	}()
	data, err := json.Marshal(v)
	if err != nil || len(data) > 6*maxFields { // an escape is at most six bytes for one
		return nil, false
	}
	s := scanner{data: data}
	decoded, err = s.value(1)
	return decoded, err == nil
}
