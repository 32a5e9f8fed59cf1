package wire

import (
	"context"
	"errors"
	"maps"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// A decided group never changes. To retry its failed members, a new group takes its place: the
// succeeded members are copied to it, and the messages of the failed ones name it. Late reports to
// the old group have no effect.

// NextGroup returns the id of the group that takes the place of a decided group.
func NextGroup(group task.ID) task.ID { return task.Derive(group, "again") }

// LatestGroup returns the state of a group, or of the last one that took its place, and sets group
// to its id. Returns the errors of the gatherer, such as ErrNotFound of package resultstore if no
// member of group has ended.
func LatestGroup(ctx context.Context, gatherer resultstore.Gatherer, group *task.ID) (resultstore.Gathered, error) {
	known, err := gatherer.Group(ctx, *group)
	for err == nil && known.Decider >= 0 && known.Failed > 0 {
		id := NextGroup(*group)
		next, nerr := gatherer.Group(ctx, id)
		if nerr != nil {
			if !errors.Is(nerr, resultstore.ErrNotFound) {
				err = nerr
			}
			break
		}
		*group, known = id, next
	}
	return known, err
}

// MoveToNextGroup makes e, a member of a group, a member of the next group. A callback that is a
// member of another group becomes a member of the next one, too. It changes no shared links.
func MoveToNextGroup(e *task.Envelope) {
	e.Group = NextGroup(e.Group)
	e.Chord = moveCallback(e.Chord)
}

// moveCallback returns the link of a callback as a member of the next group, if it is a member.
func moveCallback(l *task.Link) *task.Link {
	if l == nil || l.Group == "" {
		return l
	}
	moved := *l
	moved.Group, moved.Chord = NextGroup(l.Group), moveCallback(l.Chord)
	return &moved
}

// Rewrite returns a copy of m with the envelope e in format f, the format of m. Other headers and
// properties of m stay, and so do its life and generation. queue and arrived are those of
// [Codec.EncodeAs], whose errors it returns.
func (c *Codec) Rewrite(
	m *broker.Message, f serializer.Format, queue string, e *task.Envelope, arrived *Value,
) (*broker.Message, error) {
	body, err := c.EncodeAs(f, queue, e, arrived)
	if err != nil {
		return nil, err
	}
	out := *m
	out.Body, out.ContentType = body.Body, body.ContentType
	out.Headers, out.Properties = maps.Clone(m.Headers), maps.Clone(m.Properties)
	delete(out.Properties, contentEncoding) // of the old body
	if out.Headers == nil {
		out.Headers = make(map[string]any, len(body.Headers))
	}
	if out.Properties == nil {
		out.Properties = make(map[string]string, len(body.Properties))
	}
	delete(body.Headers, HeaderLife) // that of m may be later than that of e
	maps.Copy(out.Headers, body.Headers)
	maps.Copy(out.Properties, body.Properties)
	return &out, nil
}
