package task

import (
	"context"
	"fmt"
	"iter"
)

// Policy says what becomes of a group when members of it fail for good.
type Policy string

// The policies of a group. The zero value is FailFast.
const (
	FailFast Policy = ""        // the first failure is the group's: what follows fails with it at once; the other members run on
	Collect  Policy = "collect" // what follows gets, for each member in order, its result or its failure
	Ignore   Policy = "ignore"  // what follows gets the results of those that succeeded, in order
	Refer    Policy = "refer"   // what follows gets a [Members], and reads results and failures in pages: for large groups
)

// Valid reports whether p is one of the policies.
func (p Policy) Valid() bool { return p == FailFast || p == Collect || p == Ignore || p == Refer }

// GatherName is the name of a task that every consumer knows: it returns its arguments. A group that nothing follows ends in
// one, whose result is the list of the group's.
const GatherName = "swarmiji.gather"

// Settled is the end of one member of a group: its value, or why there is none.
type Settled[R any] struct {
	Value   R        `msgpack:"value" json:"value"`
	Failure *Failure `msgpack:"failure,omitempty" json:"failure,omitempty"`
}

// Members is a group that is done, by reference. Its results are read from the store in which they were gathered, for as
// long as that keeps them. It is made by a group with the policy [Refer]; as arguments it travels like any struct.
type Members[R any] struct {
	Group  ID  `msgpack:"group" json:"group"`
	Size   int `msgpack:"size" json:"size"`     // members
	Failed int `msgpack:"failed" json:"failed"` // members that failed for good
}

// membersPage is how many members All reads at once.
const membersPage = 500

// All reads the members in order, some hundred at a time. ctx must be the one that the handler was given. The iteration ends
// with the first error, such as that of a store that has forgotten the group.
func (m Members[R]) All(ctx context.Context) iter.Seq2[Settled[R], error] {
	return func(yield func(Settled[R], error) bool) {
		r, ok := FromContext(ctx)
		if m.Size > 0 && (!ok || r.members == nil) {
			yield(Settled[R]{}, fmt.Errorf("%w: the members of a group are read with the context of a handler, where a Gatherer is configured", ErrNoResult))
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
	ContentType string // of Result; "" for no result
	Result      []byte
	Failure     *Failure // nil for a success
}

// MembersFunc reads up to limit members of a group in order, beginning with the one at from.
type MembersFunc func(ctx context.Context, group ID, from, limit int) ([]MemberResult, error)

// ReadMembers lets the handler of r read the members of groups. It is for consumers, before they run the handler.
func (r *Request) ReadMembers(f MembersFunc) { r.members = f }
