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
	r.namespace = beside(t.namespace, "_revoked")
	return &r
}

// beside returns the namespace that has a suffix after the one that is given. One that would be too long is cut, and told apart by
// a hash of all of it.
func beside(namespace, suffix string) string {
	if namespace == "" {
		namespace = defaultNamespace
	}
	if len(namespace)+len(suffix) > maxNamespace {
		h := fnv.New64a()
		_, _ = h.Write([]byte(namespace)) // it never fails
		namespace = namespace[:maxNamespace-len(suffix)-17] + "-" + strconv.FormatUint(h.Sum64()|1<<63, 16)
	}
	return namespace + suffix
}
