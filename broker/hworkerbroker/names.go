package hworkerbroker

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/keyset"
)

// keys are the four keys of a queue. They are a public format: other programs know them.
type keys struct {
	queue    string
	jobs     string // list of payloads; the right end is next
	progress string // hash of payload -> start time
	broken   string // hash of payload -> time, of those that cannot be read
	failed   string // list of payloads, the newest first
}

// keysOf names the keys of a queue, which hworker calls the worker's name.
func keysOf(queue string) (keys, error) {
	if !keyset.ValidName(queue) {
		return keys{}, fmt.Errorf("hworker: queue name %.64q: %w", queue, broker.ErrMalformed)
	}
	return keys{
		queue:    queue,
		jobs:     "hworker-jobs-" + queue,
		progress: "hworker-progress-" + queue,
		broken:   "hworker-broken-" + queue,
		failed:   "hworker-failed-" + queue,
	}, nil
}

// all returns the four keys.
func (k keys) all() []string { return []string{k.jobs, k.progress, k.broken, k.failed} }
