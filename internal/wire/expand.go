package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Successor is a task that follows another one, ready to be sent to Queue. Err is not nil if it
// cannot be sent.
type Successor struct {
	Queue    string
	Envelope *task.Envelope
	Err      error
}

// Expand calls add with each message of link l: one message, or those of the members of a group. An
// empty group adds its callback at once. Expand stops when add returns false.
//
// The ids of links without one are derived from the parent's id and label, which must differ for
// each link of the parent. g is the parent's result. m is the parent's membership in a group; nil
// if the parent is not in a group or the link does not continue it. queue is the default for links
// without a queue.
func (c *Codec) Expand(parent *task.Envelope, l *task.Link, label, queue string, g Given, m *task.Membership, add func(Successor) bool) {
	x := expansion{codec: c, parent: parent, queue: queue, given: g, add: add}
	id := l.ID
	if id == "" {
		id = task.Derive(parent.ID, label)
	}
	x.link(l, id, g, m)
}

// expansion is one call of Expand or Member: the arguments that are the same for all links.
type expansion struct {
	codec  *Codec
	parent *task.Envelope
	queue  string
	given  Given
	add    func(Successor) bool
}

// link calls add with the messages of l, which may be a group. id is the id of l, g its input, and
// m its membership in a group. It returns false if add did.
func (x *expansion) link(l *task.Link, id task.ID, g Given, m *task.Membership) bool {
	if len(l.Members) > 0 {
		return x.group(l, id, g, m)
	}
	return x.add(x.codec.Follow(x.parent, l, id, x.queue, g, m))
}

// group calls add with the messages of a group's members: one for each member link, or, if l.Each
// is set, one for each element of the list in g. For an empty list it adds the callback instead. If
// g is not a list it adds the callback with Err set. It returns false if add did.
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
	if err != nil { // only the waiter of the group can be told of the error
		s := x.codec.Follow(x.parent, chord, chord.ID, x.queue, Given{}, membership(chord))
		s.Err = err
		return x.add(s)
	}
	if len(elements) == 0 {
		empty, err := x.codec.joined(l.Policy, id, nil)
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

// Member calls add with the messages of one member of a group that has a member for each element of
// a list. g holds the element, and m the position of the member. The member's own result is sent to
// no submitter; only the callback of the group receives it. It returns false if add did.
func (c *Codec) Member(parent *task.Envelope, group *task.Link, id task.ID, queue string, g Given, m *task.Membership, add func(Successor) bool) bool {
	quiet := *parent
	quiet.ReplyTo = ""
	x := expansion{codec: c, parent: &quiet, queue: queue, given: g, add: add}
	return x.member(&group.Members[0], id, g, m)
}

// member calls add with the messages of the member l of a group, at the position m. It returns
// false if add did.
func (x *expansion) member(l *task.Link, group task.ID, g Given, m *task.Membership) bool {
	id := l.ID
	if id == "" {
		id = MemberID(group, m.Index)
	}
	return x.link(l, id, g, m)
}

// MemberID returns the id of the member at index of a group, for a link that does not set one. It
// is the same in every call.
func MemberID(group task.ID, index int) task.ID {
	return task.Derive(group, "member"+strconv.Itoa(index))
}

// Callback returns the link of the task that follows a group: its Chord, or a gather task without
// one. The link gets an id, the group's policy, and the group's own membership m in another group.
// For a group with one member for each element, its result goes to replyTo unless the link sets
// ReplyTo.
func Callback(l *task.Link, group task.ID, m *task.Membership, replyTo string) *task.Link {
	chord := task.Link{Name: task.GatherName}
	if l.Chord != nil {
		chord = *l.Chord
	}
	chord.Policy = l.Policy
	if l.Each && chord.ReplyTo == "" { // the members send their results to no submitter
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

// membership returns the membership of a callback in another group, or nil.
func membership(chord *task.Link) *task.Membership {
	if chord.Group == "" {
		return nil
	}
	return &task.Membership{Group: chord.Group, Index: chord.GroupIndex, Size: chord.GroupSize, Chord: chord.Chord}
}

// joined returns the value that a group passes on: a reference to it if the policy is Refer,
// otherwise the joined list.
func (c *Codec) joined(p task.Policy, group task.ID, list []Value) (Value, error) {
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

// Reference serializes a reference to a group.
func (c *Codec) Reference(m task.Members[any]) (Value, error) {
	data, ct, err := c.Marshal("", m)
	return Value{ct, data}, err
}

// FollowGroup returns the message of the callback of member's group, with the group's result g.
func (c *Codec) FollowGroup(member *task.Envelope, queue string, g Given) Successor {
	return c.Follow(member, member.Chord, member.Chord.ID, queue, g, membership(member.Chord))
}

// Follow returns the message of one link that is not a group. Err is set if a name, an id, the
// metadata or the arguments are invalid.
func (c *Codec) Follow(parent *task.Envelope, l *task.Link, id task.ID, queue string, g Given, m *task.Membership) Successor {
	e := &task.Envelope{
		ID: id, Root: parent.RootID(), Parent: parent.ID, Name: l.Name, ContentType: l.ContentType, Args: l.Args, Meta: l.Meta,
		Base: parent.Base, SentAt: parent.SentAt, Origin: parent.Origin, ReplyTo: parent.ReplyTo, Correlation: parent.Correlation,
		Then: l.Then, Else: l.Else, Copy: rand.Text(), Life: parent.Life,
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
	e.Correlation = l.Correlation.Or(e.Correlation)
	if e.Life > 0 && c.protect.sealer == nil { // as BeginLife: a later life does not expire
		e.Meta.Expires = task.Set(time.Time{})
	}
	e.Headers = StepHeaders(parent.Headers, l)
	s := Successor{Queue: queue, Envelope: e}
	if s.Err = errors.Join(task.CheckName(e.Name), task.CheckName(queue), e.ID.Check(), e.Meta.Check()); s.Err != nil {
		return s
	}
	if err := c.feed(e, l, g); err != nil {
		s.Err = fmt.Errorf("%w: %w", task.ErrBadArgs, err)
	}
	return s
}

// StepHeaders returns the headers of the task of l, whose parent has the headers h. Do not change
// the map: it may be h.
func StepHeaders(h map[string]string, l *task.Link) map[string]string {
	if len(l.Headers)+len(l.Without) == 0 {
		return h
	}
	all := make(map[string]string, len(h)+len(l.Headers))
	maps.Copy(all, h)
	for _, k := range l.Without {
		delete(all, k)
	}
	maps.Copy(all, l.Headers)
	return all
}
