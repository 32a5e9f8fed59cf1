package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Why a task has no copy if its message is gone.
const (
	noOriginal = "its message is gone: waiting tasks and dead letters have their arguments, and the history has them if consumers set Report.KeepArguments"
	notEnded   = "it has not ended, and its message is with a consumer or was not found"
)

// original is the message of a task, of which a copy can be made.
type original struct {
	envelope *task.Envelope
	format   serializer.Format // of the copy; nil: the first one
	args     json.RawMessage   // nil: no arguments, or these cannot be shown as JSON
	refused  string            // why no copy can be made; "": it can
}

// original reads the message of a task. Its result shares no memory with m.
func (l *Local) original(queue string, m *broker.Message) *original {
	e, format, err := l.codec.Decode(m)
	if err != nil {
		return &original{refused: "its message cannot be read: " + err.Error()}
	}
	return l.originalOf(queue, &original{envelope: e, format: format})
}

// originalOf reads the arguments of o, and returns it.
func (l *Local) originalOf(queue string, o *original) *original {
	e := o.envelope
	switch {
	case strings.HasSuffix(e.ContentType, "+"+serializer.CodingSealed):
		o.refused = "its arguments are sealed"
		return o
	case e.Headers[task.HeaderConditions] != "":
		o.refused = "it has conditions: run its job again"
		return o
	}
	if err := l.codec.Open(queue, e); err != nil {
		o.refused = "its arguments cannot be read: " + err.Error()
		return o
	}
	e.Args = slices.Clone(e.Args)
	if e.ContentType != serializer.ContentRaw || utf8.Valid(e.Args) {
		// arguments that have no form in JSON are copied as they are
		o.args, _ = readable(e.ContentType, e.Args)
	}
	return o
}

// RunTask implements [Tasks].
func (l *Local) RunTask(ctx context.Context, r TaskRun) (Change, error) {
	c := Change{Do: DoRunTask, Target: string(r.ID)}
	if l.cfg.Broker == nil {
		return c, missing("messages", needBroker)
	}
	return l.once(ctx, c, r.Key, string(r.Args), func(ctx context.Context, id task.ID) (Change, error) {
		return l.runTask(ctx, c, r, id)
	})
}

// runTask submits a copy of a task under an id.
func (l *Local) runTask(ctx context.Context, c Change, r TaskRun, id task.ID) (Change, error) {
	s, err := l.look(ctx, TaskKey{ID: r.ID, Queues: r.Queues})
	if err != nil {
		return c, err
	}
	if len(s.found) == 0 {
		return c, errorf(CodeNotFound, "no part knows task %s", r.ID)
	}
	o := s.original
	if why := s.notAgain(); why != "" {
		return c, errorf(CodeConflict, "task %s cannot run again: %s", r.ID, why)
	}
	edited, err := o.edit(l.codec, r.Args)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, map[string]any{"queue": s.queue, "edited": edited}, func(c *Change) error {
		e := o.copy(id, l.cfg.NodeID)
		m, err := l.encode(o.format, s.queue, e)
		if err != nil {
			return errorf(CodeInvalid, "the copy cannot be encoded: %v", err)
		}
		c.Copy = string(e.ID)
		if err := l.cfg.Broker.Publish(ctx, s.queue, m); err != nil {
			return err
		}
		c.Done = 1
		l.sent(ctx, s.queue, e)
		return nil
	})
}

// encode returns the message of a copy, in format f or, if f is nil, in the first one. Returns the
// errors of the codec.
func (l *Local) encode(f serializer.Format, queue string, e *task.Envelope) (*broker.Message, error) {
	if f == nil {
		return l.codec.Encode(queue, e)
	}
	return l.codec.EncodeAs(f, queue, e, wire.Value{})
}

// sent publishes the event about a copy. A lost event is not an error, because the task is sent.
func (l *Local) sent(ctx context.Context, queue string, e *task.Envelope) {
	if l.cfg.Events == nil {
		return
	}
	_ = l.cfg.Events.Publish(context.WithoutCancel(ctx), events.Event{
		Type: events.TaskSent, TaskID: e.ID, NodeID: l.cfg.NodeID, Time: time.Now(), Name: e.Name, Queue: queue,
		Args: l.codec.Preview(e.ContentType, e.Args, false),
	})
}

// notAgain says why no copy of the task can be made. "": it can.
func (s *sighting) notAgain() string {
	switch {
	case s.original != nil:
		return s.original.refused
	case s.history != nil && len(s.history.Original) > 0:
		return notEnded
	}
	return noOriginal
}

// copy returns a new task, id, with the name, the metadata and the headers of the original. It is a
// task of its own: it has no workflow, starts at once and does not expire.
func (o *original) copy(id task.ID, node string) *task.Envelope {
	e := wire.Again(id, o.envelope)
	e.SentAt, e.Origin = time.Now(), node
	return e
}

// edit replaces the arguments by edited ones, in the content type of the original. No edited
// arguments, and equal ones, leave the bytes as they are.
func (o *original) edit(codec *wire.Codec, edited json.RawMessage) (changed bool, err error) {
	e := o.envelope
	if len(bytes.TrimSpace(edited)) == 0 {
		return false, nil
	}
	if len(e.Args) > 0 && o.args == nil {
		return false, errorf(CodeConflict, "the arguments of this task have no form as JSON, so they cannot be edited")
	}
	var now, before bytes.Buffer
	if err := json.Compact(&now, edited); err != nil {
		return false, errorf(CodeInvalid, "the arguments are no JSON: %v", err)
	}
	if json.Compact(&before, o.args) == nil && bytes.Equal(now.Bytes(), before.Bytes()) {
		return false, nil
	}
	var v any
	switch e.ContentType {
	case serializer.ContentJSON:
		v = json.RawMessage(now.Bytes())
	case serializer.ContentRaw:
		var text string
		if err := json.Unmarshal(edited, &text); err != nil {
			return false, errorf(CodeInvalid, "the arguments of this task are a text, which is written in quotes")
		}
		v = []byte(text)
	default:
		d := json.NewDecoder(bytes.NewReader(edited))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return false, errorf(CodeInvalid, "the arguments are no JSON: %v", err)
		}
		v = exact(v)
	}
	e.Args, e.ContentType, err = codec.Marshal(e.ContentType, v)
	if err != nil {
		return false, errorf(CodeInvalid, "the arguments cannot be encoded: %v", err)
	}
	return true, nil
}

// exact replaces the numbers of v by integers where they are integers, so that large ones stay as
// they are.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // JSON has no other numbers
		return f
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}
