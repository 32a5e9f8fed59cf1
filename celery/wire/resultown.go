package wire

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"time"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wire"
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
	if recordState(celeryState(r.State)) != r.State || r.State == task.StateRevoked {
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

// ownError adds the error e of the record r, if Go would not read the same one from the document.
// back is the error that Go would read from it.
func ownError(own map[string]any, r *resultstore.Record, back *task.RemoteError) error {
	if r.Error == nil {
		if back != nil {
			own["no_error"] = true
		}
		return nil
	}
	e := *r.Error
	if back != nil {
		e.Stack = "" // it is the traceback
		b := *back
		b.Stack = ""
		if reflect.DeepEqual(&e, &b) {
			return nil
		}
	}
	data, err := wire.EncodeRecord(&resultstore.Record{ID: r.ID, State: task.StateFailed, Error: &e})
	own["error"] = encodeBytes(data)
	return err
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
	if err := readOwnError(own, r); err != nil {
		return fmt.Errorf("%s: error: %w", keyOwn, err)
	}
	return nil
}

// readOwnError sets the error of r as ownError wrote it.
func readOwnError(own map[string]any, r *resultstore.Record) error {
	if own["no_error"] == true {
		r.Error = nil
	}
	text, ok := own["error"].(string)
	if !ok {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	kept, err := wire.DecodeRecord(data)
	if err != nil {
		return err
	}
	if kept.Error == nil {
		return errType
	}
	if r.Error != nil {
		kept.Error.Stack = r.Error.Stack
	}
	r.Error = kept.Error
	return nil
}

// nullOf returns the encoded value null.
func nullOf(c coding) string {
	if c == (jsonCoding{}) {
		return "null"
	}
	return "\xc0"
}
