package task

import (
	"context"
	"fmt"
	"iter"
)

// Policy selects how a group ends when members fail for good.
type Policy string

// The policies of a group. The zero value is FailFast.
const (
	// The first failure fails the task that follows, at once. The other members continue.
	FailFast Policy = ""
	// the task that follows gets, for each member in order, its result or its failure
	Collect Policy = "collect"
	// the task that follows gets the results of the succeeded members, in order
	Ignore Policy = "ignore"
	// the task that follows gets a [Members] and reads results and failures in pages, for large groups
	Refer Policy = "refer"
)

// Valid reports whether p is one of the policies.
func (p Policy) Valid() bool { return p == FailFast || p == Collect || p == Ignore || p == Refer }

// GatherName is the name of a task that every consumer runs: it returns its arguments. It ends a
// group that no task follows; its result is the list of the group's results.
const GatherName = "swarmiji.gather"

// Settled is the end of one member of a group: its value or its failure.
type Settled[R any] struct {
	Value   R        `msgpack:"value" json:"value"`
	Failure *Failure `msgpack:"failure,omitempty" json:"failure,omitempty"`
}

// Members refers to an ended group. Its results are read from the store that gathered them, while
// the store keeps them. A group with the policy [Refer] makes it; as an argument it travels like
// any struct.
type Members[R any] struct {
	Group  ID  `msgpack:"group" json:"group"`
	Size   int `msgpack:"size" json:"size"`     // number of members
	Failed int `msgpack:"failed" json:"failed"` // members that failed for good
}

// membersPage is the number of members that All reads at once.
const membersPage = 500

// All returns an iterator over the members in order, which reads them in pages. ctx must be the
// context of the handler. The iteration ends with the first error, for example if the store no
// longer has the group.
func (m Members[R]) All(ctx context.Context) iter.Seq2[Settled[R], error] {
	return func(yield func(Settled[R], error) bool) {
		r, ok := FromContext(ctx)
		if m.Size > 0 && (!ok || r.members == nil) {
			yield(Settled[R]{}, fmt.Errorf("%w: read the members of a group with the context of a handler, in a consumer with a Gatherer", ErrNoResult))
			return
		}
		for from := 0; from < m.Size; {
			page, err := r.members(ctx, m.Group, from, membersPage)
			if err == nil && len(page) == 0 {
				err = fmt.Errorf("%w: group %s from member %d", ErrNoResult, m.Group, from)
			}
			if err != nil {
				yield(Settled[R]{}, err)
				return
			}
			for i := range page {
				s := Settled[R]{Failure: page[i].Failure}
				if s.Failure == nil && page[i].ContentType != "" {
					err = r.decode(page[i].ContentType, page[i].Result, &s.Value)
				}
				if !yield(s, err) || err != nil {
					return
				}
			}
			from += len(page)
		}
	}
}

// MemberResult is the end of one member as a store keeps it.
type MemberResult struct {
	ContentType string // of Result; "": no result
	Result      []byte
	Failure     *Failure // nil: the member succeeded
}

// MembersFunc reads up to limit members of a group in order, from index from on.
type MembersFunc func(ctx context.Context, group ID, from, limit int) ([]MemberResult, error)

// ReadMembers sets the function with which the handler of r reads members of groups. Consumers call
// it before the handler.
func (r *Request) ReadMembers(f MembersFunc) { r.members = f }
