package settings

import (
	"fmt"
	"hash/fnv"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// AsideQueue returns the name of the queue for the messages of a paused task: QUEUE.paused.TASK, or
// with a hash in place of names that are too long.
func AsideQueue(queue, name string) string {
	const middle = ".paused."
	if full := queue + middle + name; len(full) <= naming.MaxName {
		return full
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(queue + "/" + name)) // it never fails
	hash := fmt.Sprintf("%016x", h.Sum64())
	return queue[:min(len(queue), naming.MaxName-len(middle)-len(hash))] + middle + hash
}
