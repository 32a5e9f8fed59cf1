package wire

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// keyOwn is the key of a result's document that holds what Celery has no key for.
const keyOwn = "swarmiji"

// ownOf returns the fields of a record that Celery has no key for, without those that are zero.
func ownOf(r *resultstore.Record) map[string]any {
	own := map[string]any{}
	text := func(key, v string) {
		if v != "" {
			own[key] = v
		}
	}
	whole := func(key string, v int) {
		if v != 0 {
			own[key] = v
		}
	}
	moment := func(key string, t time.Time) {
		if !t.IsZero() {
			own[key] = serializer.Milli(t)
		}
	}
	if recordState(celeryState(r.State)) != r.State && r.State != task.StateExpired {
		own["state"] = string(r.State)
	}
	text("name", r.Name)
	text("node", r.NodeID)
	text("reply_to", r.ReplyTo)
	text("correlation", r.Correlation)
	whole("generation", r.Generation)
	whole("deliveries", r.Deliveries)
	whole("retries", r.Retries)
	whole("life", r.Life)
	moment("started", r.StartedAt)
	if !r.State.Terminal() {
		moment("finished", r.FinishedAt)
	}
	whole("done", r.Progress.Done)
	whole("total", r.Progress.Total)
	text("note", utf.Cut(r.Progress.Note, task.MaxProgressNote))
	moment("progress", r.Progress.At)
	return own
}

// ownResult adds the result of a record as it is, if it has one.
func ownResult(own map[string]any, r *resultstore.Record) {
	if r.ContentType != "" || r.Result != nil {
		own["type"], own["data"] = r.ContentType, encodeBytes(r.Result)
	}
}

// ownError adds the error of a record, if Go would not read the same one from the exception x.
func ownError(own map[string]any, e *task.RemoteError, x Exception) {
	if e == nil {
		own["no_error"] = true
		return
	}
	back := FromException(x, e.Stack)
	if e.Step != "" {
		own["step"] = utf.Cut(e.Step, 255)
	}
	if e.StepID != "" {
		own["step_id"] = utf.Cut(string(e.StepID), 255)
	}
	if back.Type != e.Type || back.Module != e.Module || back.Message != e.Message || !reflect.DeepEqual(back.Args, e.Args) {
		own["error"] = []any{utf.Cut(e.Type, task.MaxErrorText), utf.Cut(e.Module, 255), utf.Cut(e.Message, task.MaxErrorText), e.Args != nil}
	}
}

// encodeBytes returns data in a form that both encodings hold.
func encodeBytes(data []byte) any {
	if data == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(data)
}

// readOwnRecord sets the fields of r that ownOf wrote. It does nothing without data: Python wrote
// the document.
func readOwnRecord(c coding, data []byte, r *resultstore.Record) error {
	if data == nil {
		return nil
	}
	v, err := c.value(data)
	if err != nil {
		return err
	}
	own, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %w", keyOwn, errType)
	}
	text := func(key string) string { s, _ := own[key].(string); return s }
	whole := func(key string) int { n, _ := count(own[key]); return n }
	if s := task.State(text("state")); s != "" {
		r.State = s
	}
	r.Name, r.NodeID, r.ReplyTo, r.Correlation = text("name"), text("node"), text("reply_to"), text("correlation")
	r.Generation, r.Deliveries, r.Retries, r.Life = whole("generation"), whole("deliveries"), whole("retries"), whole("life")
	r.StartedAt = milli(own["started"])
	if t := milli(own["finished"]); !t.IsZero() {
		r.FinishedAt = t
	}
	r.Progress = task.ProgressValue{Done: whole("done"), Total: whole("total"), Note: utf.Cut(text("note"), task.MaxProgressNote), At: milli(own["progress"])}
	if contentType, ok := own["type"].(string); ok {
		r.ContentType, r.Result = contentType, nil
		if s, ok := own["data"].(string); ok {
			if r.Result, err = base64.StdEncoding.DecodeString(s); err != nil {
				return fmt.Errorf("%s: data: %w", keyOwn, err)
			}
		}
	} else if r.State == task.StateSucceeded && string(r.Result) == nullOf(c) {
		r.ContentType, r.Result = "", nil
	}
	readOwnError(own, r)
	return nil
}

// readOwnError sets the error of r as ownError wrote it.
func readOwnError(own map[string]any, r *resultstore.Record) {
	if own["no_error"] == true {
		r.Error = nil
	}
	parts, _ := own["error"].([]any)
	if stack, ok := own["stack"].(string); ok && r.Error == nil {
		r.Error = &task.RemoteError{Stack: stack}
	}
	if r.Error == nil {
		return
	}
	r.Error.Step, _ = own["step"].(string)
	if id, ok := own["step_id"].(string); ok {
		r.Error.StepID = task.ID(id)
	}
	if len(parts) != 4 {
		return
	}
	r.Error.Type, _ = parts[0].(string)
	r.Error.Module, _ = parts[1].(string)
	r.Error.Message, _ = parts[2].(string)
	if parts[3] != true {
		r.Error.Args = nil
	}
}

// nullOf returns the encoded value null.
func nullOf(c coding) string {
	if c == (jsonCoding{}) {
		return "null"
	}
	return "\xc0"
}
