package open

import (
	"hash/fnv"
	"strconv"

	"github.com/swarmiji/swarmiji/revoke"
)

// maxNamespace is the largest length of a namespace that all adapters accept.
const maxNamespace = 64

// revocations returns the target of the bus for revocations: the same server, with a namespace
// beside that of the events. So the user's retention of events does not change. Its retention is
// that of package revoke, unless Options.Revocations sets another. t is not changed.
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

// beside returns the namespace with a suffix; "" stands for the default namespace. It cuts a
// namespace that would become too long, and appends a hash of the whole namespace, so that two long
// namespaces stay different.
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
