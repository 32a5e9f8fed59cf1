package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/swarmiji/swarmiji/task"
)

// Successor is a task that follows another one, ready to be sent to Queue, or the reason why it cannot be.
type Successor struct {
	Queue    string
	Envelope *task.Envelope
	Err      error
}

// Expand makes the messages that a link stands for: one, or those of a group's members. label tells the links of parent
// apart, to derive the ids of those that have none. g is what the parent hands on; m is the parent's place in its group, nil
// for none or where the link does not take it. queue is where a link goes that names none.
//
// add is called for each; an empty group gives what follows it at once. It returns false to stop.
func (c *Codec) Expand(parent *task.Envelope, l *task.Link, label, queue string, g Given, m *task.Membership, add func(Successor) bool) {
	x := expansion{codec: c, parent: parent, queue: queue, given: g, add: add}
	id := l.ID
	if id == "" {
		id = task.Derive(parent.ID, label)
	}
	x.link(l, id, g, m)
}

type expansion struct {
	codec  *Codec
	parent *task.Envelope
	queue  string
	given  Given
	add    func(Successor) bool
}

func (x *expansion) link(l *task.Link, id task.ID, g Given, m *task.Membership) bool {
	if len(l.Members) > 0 {
		return x.group(l, id, g, m)
	}
	return x.add(x.codec.Follow(x.parent, l, id, x.queue, g, m))
}

// group makes the messages of a group's members.
func (x *expansion) group(l *task.Link, id task.ID, g Given, m *task.Membership) bool {
	chord := Callback(l, id, m, x.parent.ReplyTo)
	if !l.Each {
		for i := range l.Members {
			if !x.member(&l.Members[i], id, g, &task.Membership{Group: id, Index: i, Size: len(l.Members), Chord: chord}) {
				return false
			}
		}
		return true
	}
	elements, err := x.codec.Split(g.Value)
	if err != nil { // nobody can be told but who waits for the group
		s := x.codec.Follow(x.parent, chord, chord.ID, x.queue, Given{}, membership(chord))
		s.Err = err
		return x.add(s)
	}
	if len(elements) == 0 {
		empty, err := x.codec.gathered(l.Policy, id, nil)
		s := x.codec.Follow(x.parent, chord, chord.ID, x.queue, Given{Value: empty}, membership(chord))
		s.Err = errors.Join(err, s.Err)
		return x.add(s)
	}
	for i, e := range elements {
		if !x.codec.Member(x.parent, l, id, x.queue, Given{Value: e}, &task.Membership{Group: id, Index: i, Size: len(elements), Chord: chord}, x.add) {
			return false
		}
	}
	return true
}

// Member makes the messages of one member of a group that has one for each element of a list. Nobody waits for it by itself:
// only what follows the group is told of.
func (c *Codec) Member(parent *task.Envelope, group *task.Link, id task.ID, queue string, g Given, m *task.Membership, add func(Successor) bool) bool {
	quiet := *parent
	quiet.ReplyTo = ""
	x := expansion{codec: c, parent: &quiet, queue: queue, given: g, add: add}
	return x.member(&group.Members[0], id, g, m)
}

func (x *expansion) member(l *task.Link, group task.ID, g Given, m *task.Membership) bool {
	id := l.ID
	if id == "" {
		id = MemberID(group, m.Index)
	}
	return x.link(l, id, g, m)
}

// MemberID is the id of a member that has none of its own.
func MemberID(group task.ID, index int) task.ID {
	return task.Derive(group, "member"+strconv.Itoa(index))
}

// Callback returns what follows a group: its Chord, with an id, with the group's policy, and in the place m that the group
// itself has in another one. Its result goes to replyTo, unless it says where.
func Callback(l *task.Link, group task.ID, m *task.Membership, replyTo string) *task.Link {
	chord := task.Link{Name: task.GatherName}
	if l.Chord != nil {
		chord = *l.Chord
	}
	chord.Policy = l.Policy
	if l.Each && chord.ReplyTo == "" { // its members tell nobody of their results
		chord.ReplyTo = replyTo
	}
	if chord.ID == "" {
		chord.ID = task.Derive(group, "chord")
	}
	if m != nil {
		chord.Group, chord.GroupIndex, chord.GroupSize, chord.Chord = m.Group, m.Index, m.Size, m.Chord
	}
	return &chord
}

// membership is the place that a callback has in another group, nil for none.
func membership(chord *task.Link) *task.Membership {
	if chord.Group == "" {
		return nil
	}
	return &task.Membership{Group: chord.Group, Index: chord.GroupIndex, Size: chord.GroupSize, Chord: chord.Chord}
}

// gathered is what a group with nothing to list hands on.
func (c *Codec) gathered(p task.Policy, group task.ID, list []Value) (Value, error) {
	if p == task.Refer {
		return c.Reference(task.Members[any]{Group: group})
	}
	j := c.Join(p == task.Collect)
	for _, v := range list {
		if err := j.Add(v, nil); err != nil {
			return Value{}, err
		}
	}
	return j.List()
}

// Reference serializes a group by reference.
func (c *Codec) Reference(m task.Members[any]) (Value, error) {
	data, ct, err := c.Marshal("", m)
	return Value{ct, data}, err
}

// FollowGroup makes the message of what follows a group that member was the last of, with what the group hands on.
func (c *Codec) FollowGroup(member *task.Envelope, queue string, g Given) Successor {
	return c.Follow(member, member.Chord, member.Chord.ID, queue, g, membership(member.Chord))
}

// Follow makes the message of one link, which is no group.
func (c *Codec) Follow(parent *task.Envelope, l *task.Link, id task.ID, queue string, g Given, m *task.Membership) Successor {
	e := &task.Envelope{
		ID: id, Root: parent.RootID(), Parent: parent.ID, Name: l.Name, ContentType: l.ContentType, Args: l.Args, Meta: l.Meta,
		Base: parent.Base, SentAt: parent.SentAt, Origin: parent.Origin, ReplyTo: parent.ReplyTo, Correlation: parent.Correlation,
		Headers: parent.Headers, Then: l.Then, Else: l.Else, Copy: rand.Text(), Life: parent.Life,
	}
	if m != nil {
		e.Group, e.GroupIndex, e.GroupSize, e.Chord = m.Group, m.Index, m.Size, m.Chord
	}
	if l.Queue != "" {
		queue = l.Queue
	}
	if l.ReplyTo != "" {
		e.ReplyTo = l.ReplyTo
	}
	s := Successor{Queue: queue, Envelope: e}
	if s.Err = errors.Join(task.CheckName(e.Name), task.CheckName(queue), e.ID.Check(), e.Meta.Check()); s.Err != nil {
		return s
	}
	if err := c.feed(e, l, g); err != nil {
		s.Err = fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return s
}
