package open

import (
	"hash/fnv"
	"strconv"

	"github.com/swarmiji/swarmiji/revoke"
)

// maxNamespace is the longest namespace that every adapter takes.
const maxNamespace = 64

// revocations returns the target of the bus for revocations: the same place, a namespace beside that of the events, so that
// what is kept of these, and for how long, stays the user's choice.
func (t *target) revocations() *target {
	r := *t
	keep := revoke.Retention()
	if age := t.options.Revocations.Age; age != 0 {
		keep.Age = age
	}
	if n := t.options.Revocations.Max; n != 0 {
		keep.Max = n
	}
	r.retain = keep
	if r.namespace == "" {
		r.namespace = "default"
	}
	const suffix = "_revoked"
	if len(r.namespace)+len(suffix) > maxNamespace {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.namespace)) // it never fails
		r.namespace = r.namespace[:maxNamespace-len(suffix)-17] + "-" + strconv.FormatUint(h.Sum64()|1<<63, 16)
	}
	r.namespace += suffix
	return &r
}
