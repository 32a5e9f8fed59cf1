package wire

import (
	"fmt"
	"maps"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// Again returns a task with this id and the name, arguments, metadata and headers of e. It belongs
// to no workflow, starts at once and does not expire. It shares the arguments of e.
func Again(id task.ID, e *task.Envelope) *task.Envelope {
	again := &task.Envelope{ID: id, Name: e.Name, ContentType: e.ContentType, Args: e.Args, Meta: e.Meta, Base: e.Base, Headers: maps.Clone(e.Headers)}
	again.Meta.NotBefore, again.Meta.Expires = task.Opt[time.Time]{}, task.Opt[time.Time]{}
	return again
}

// KeepOriginal returns the form in which a history keeps the task, and its media type. The form has
// the result of Again, so without the arguments of other tasks of its workflow. It is nil if it
// would have more than most bytes.
func KeepOriginal(e *task.Envelope, most int) (body []byte, contentType string) {
	m, err := msgpack.Compact{}.Encode(Again(e.ID, e))
	if err != nil || len(m.Body) > most {
		return nil, ""
	}
	return m.Body, m.ContentType
}

// Original returns the task that KeepOriginal wrote. Returns [serializer.ErrMalformed] for other
// data, and for those of another task than the one with this id and name.
func Original(id task.ID, name string, body []byte, contentType string) (*task.Envelope, error) {
	e, err := msgpack.Compact{}.Decode(&broker.Message{ID: string(id), ContentType: contentType, Body: body})
	if err != nil {
		return nil, err
	}
	if e.ID != id || e.Name != name {
		return nil, fmt.Errorf("%w: it is that of another task", serializer.ErrMalformed)
	}
	return e, nil
}
