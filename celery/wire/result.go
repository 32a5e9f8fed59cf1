package wire

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// States of Celery's results.
const (
	stateStarted = "STARTED"
	stateSuccess = "SUCCESS"
	stateFailure = "FAILURE"
	stateRetry   = "RETRY"
	stateRevoked = "REVOKED"
)

// celeryState returns the state of a result for a record's.
func celeryState(s task.State) string {
	switch s {
	case task.StateSucceeded:
		return stateSuccess
	case task.StateFailed:
		return stateFailure
	case task.StateRevoked, task.StateExpired:
		return stateRevoked
	case task.StateRetrying, task.StateRequeued:
		return stateRetry
	}
	return stateStarted
}

// recordState returns the state of a record for a result's. States of the user, such as PROGRESS,
// are those of a task that runs.
func recordState(s string) task.State {
	switch s {
	case stateSuccess:
		return task.StateSucceeded
	case stateFailure:
		return task.StateFailed
	case stateRevoked:
		return task.StateRevoked
	case stateRetry:
		return task.StateRetrying
	}
	return task.StateStarted
}

// EncodeResult returns a record as a document of Celery, in JSON, or in msgpack if contentType is
// [serializer.ContentMsgpack]. What Celery has no key for is under "swarmiji", which Python
// ignores.
//
// A result in another encoding than the document is converted for Python, and kept for Go as it is.
// One that cannot be converted is null in Python. Returns [resultstore.ErrMalformed] for an invalid
// id, state, count or text.
func EncodeResult(r *resultstore.Record, contentType string) ([]byte, error) {
	return writeResult(r, contentType, ToException)
}

// EncodeChordFailure is [EncodeResult] for the task behind a chord that failed because of the part
// in r.Error.StepID. Python gets a ChordError that names the part, and Go the error of the part.
func EncodeChordFailure(r *resultstore.Record, contentType string) ([]byte, error) {
	return writeResult(r, contentType, chordError)
}

// writeResult does the work of EncodeResult. exception returns the exception for the error of a
// task of this name.
func writeResult(r *resultstore.Record, contentType string, exception func(*task.RemoteError, string) Exception) ([]byte, error) {
	c := codingOf(contentType)
	if c == nil {
		c = jsonCoding{}
	}
	err := checkRecord(r)
	var data []byte
	if err == nil {
		data, err = encodeResult(c, r, exception)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	return data, nil
}

// checkRecord returns an error for an invalid id, state, count or text.
func checkRecord(r *resultstore.Record) error {
	if err := r.ID.Check(); err != nil {
		return err
	}
	if !r.State.Valid() {
		return fmt.Errorf("state %q", utf.Cut(string(r.State), 32))
	}
	if r.Generation < 0 || r.Deliveries < 0 || r.Retries < 0 || r.Life < 0 || r.Progress.Done < 0 || r.Progress.Total < 0 {
		return fmt.Errorf("negative count: generation %d, deliveries %d, retries %d, life %d", r.Generation, r.Deliveries, r.Retries, r.Life)
	}
	for _, s := range [...]string{r.Name, r.ContentType, r.NodeID, r.ReplyTo, r.Correlation} {
		if !utf8.ValidString(s) {
			return fmt.Errorf("text %q is not UTF-8", utf.Cut(s, 64))
		}
	}
	return nil
}

// encodeResult does the work of writeResult.
func encodeResult(c coding, r *resultstore.Record, exception func(*task.RemoteError, string) Exception) ([]byte, error) {
	null, err := c.encode(nil)
	if err != nil {
		return nil, err
	}
	own := ownOf(r)
	result := null
	var traceback any
	var back *task.RemoteError // the error that the document has without its own part
	switch {
	case r.State == task.StateSucceeded:
		value, exact := plainResult(c, r)
		if value != nil {
			result = value
		}
		if !exact {
			ownResult(own, r)
		}
	case celeryState(r.State) == stateStarted:
		if result, err = c.encode(map[string]any{"hostname": r.NodeID, "pid": 0}); err != nil {
			return nil, err
		}
		ownResult(own, r)
	default:
		ownResult(own, r)
		e := errorOf(r)
		x := exception(e, r.Name)
		if result, err = x.write(c); err != nil {
			return nil, err
		}
		if e.Stack != "" {
			traceback = utf.Cut(e.Stack, task.MaxStack)
		}
		back = FromException(x, e.Stack)
	}
	if err := ownError(own, r, back); err != nil {
		return nil, err
	}
	done := any(nil)
	if r.State.Terminal() && !r.FinishedAt.IsZero() {
		done = r.FinishedAt.UTC().Format(naiveLayout)
	}
	children := make([]any, len(r.Children))
	for i, id := range r.Children {
		children[i] = []any{[]any{string(id), nil}, nil}
	}
	members := []member{{name: "status"}, {"result", result}, {name: "traceback"}, {name: "children"}, {name: "date_done"}, {name: "task_id"}}
	values := []any{celeryState(r.State), nil, traceback, children, done, string(r.ID)}
	if r.Parent != "" {
		members, values = append(members, member{name: "parent_id"}), append(values, string(r.Parent))
	}
	if r.Group != "" {
		members, values = append(members, member{name: "group_id"}), append(values, string(r.Group))
	}
	members, values = append(members, member{name: keyOwn}), append(values, own)
	for i := range members {
		if members[i].value == nil {
			if members[i].value, err = c.encode(values[i]); err != nil {
				return nil, err
			}
		}
	}
	data, err := c.joinMembers(members)
	if err == nil {
		err = c.check(data)
	}
	return data, err
}

// plainResult returns the result of r in the coding c, nil for no result or if it cannot be
// converted. exact is true if Go reads the same result back from it.
func plainResult(c coding, r *resultstore.Record) (value []byte, exact bool) {
	if r.ContentType == "" && len(r.Result) == 0 {
		return nil, r.Result == nil
	}
	from := codingOf(r.ContentType)
	if from == nil || from.check(r.Result) != nil {
		return nil, false
	}
	data := r.Result
	if serializer.MediaType(r.ContentType) == from.args() {
		if made, err := readCall(from, data); err == nil && len(made.args) == 1 && len(made.kwargs) == 0 {
			data = made.args[0]
		}
	}
	value, err := convert(data, from, c)
	if err != nil || c.check(c.join(value)) != nil { // the document is one level deeper
		return nil, false
	}
	return value, from == c && r.ContentType == c.plain() && string(value) != nullOf(c)
}

// errorOf returns the error of a record, or one for its state.
func errorOf(r *resultstore.Record) *task.RemoteError {
	if r.Error != nil {
		return r.Error
	}
	switch r.State {
	case task.StateRevoked:
		return task.Remote(task.ErrRevoked)
	case task.StateExpired:
		return task.Remote(task.ErrExpired)
	}
	return &task.RemoteError{Type: "Exception", Module: moduleBuiltins, Message: string(r.State)}
}

// DecodeResult reads a document of Celery, in JSON or msgpack, of Python or of [EncodeResult].
//
//   - A result has the content type [serializer.ContentJSON] or [serializer.ContentMsgpack].
//   - A state of the user, such as PROGRESS, is task.StateStarted.
//   - foreign is true if Python wrote the document: the record has no token, name or submitter.
//   - Returns [resultstore.ErrMalformed] for any other data.
func DecodeResult(data []byte) (r resultstore.Record, foreign bool, err error) {
	var c coding = jsonCoding{}
	if len(data) > 0 && data[0] >= 0x80 { // a map of msgpack
		c = msgpackCoding{}
	}
	if err = c.check(data); err == nil {
		r, foreign, err = decodeResult(c, data)
	}
	if err == nil {
		err = checkRecord(&r)
	}
	if err != nil {
		return resultstore.Record{}, false, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	return r, foreign, nil
}

// decodeResult does the work of DecodeResult.
func decodeResult(c coding, data []byte) (r resultstore.Record, foreign bool, err error) {
	members, err := c.members(data)
	if err != nil {
		return r, false, err
	}
	var result, own []byte
	var status, traceback string
	read := &signatureReader{c: c}
	for _, m := range members {
		var text string
		switch m.name {
		case "status", "traceback", "date_done", "task_id", "parent_id", "group_id":
			text, err = read.text(m.value)
		}
		if err != nil {
			return r, false, fmt.Errorf("%s: %w", m.name, err)
		}
		switch m.name {
		case "status":
			status = text
		case "traceback":
			traceback = text
		case "task_id":
			r.ID = task.ID(text)
		case "parent_id":
			r.Parent = task.ID(text)
		case "group_id":
			r.Group = task.ID(text)
		case "date_done":
			if text != "" {
				if r.FinishedAt, err = ParseTime(text); err != nil {
					return r, false, err
				}
			}
		case "children":
			r.Children = readChildren(c, m.value)
		case "result":
			result = m.value
		case keyOwn:
			own = m.value
		}
	}
	if status == "" {
		return r, false, fmt.Errorf("a result without a status")
	}
	r.State = recordState(status)
	switch {
	case r.State == task.StateSucceeded:
		r.ContentType, r.Result = c.plain(), append([]byte(nil), result...)
	case r.State != task.StateStarted:
		v, err := c.value(result)
		if err != nil {
			return r, false, err
		}
		r.Error = FromException(readException(v), traceback)
		if r.State == task.StateRevoked && r.Error.Is(task.ErrExpired) {
			r.State = task.StateExpired
		}
	}
	return r, own == nil, readOwnRecord(c, own, &r)
}

// readChildren returns the ids of the tasks that follow a task. A child is a list of its id and its
// parent, and of its own children.
func readChildren(c coding, data []byte) []task.ID {
	v, err := c.value(data)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil
	}
	var ids []task.ID
	for _, child := range list {
		for range 2 { // [[id, parent], children]
			if pair, ok := child.([]any); ok && len(pair) > 0 {
				child = pair[0]
			}
		}
		if id, ok := child.(string); ok && len(ids) < resultstore.MaxChildren {
			ids = append(ids, task.ID(id))
		}
	}
	return ids
}

// milli returns the time of a number of milliseconds.
func milli(v any) time.Time {
	f, ok := number(v)
	if !ok {
		return time.Time{}
	}
	return serializer.FromMilli(int64(f))
}
