package hworkerbroker

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// keys holds the names of a queue's four keys. They are a public format: other programs know them.
type keys struct {
	queue    string
	jobs     string // list of payloads; the right end is next
	progress string // hash of payload -> start time
	broken   string // hash of payload -> time, of jobs that cannot be read
	failed   string // list of payloads, the newest first
}

// keysOf returns the names of the keys of a queue. hworker calls the queue the worker's name.
// Returns ErrMalformed if the name is not valid.
func keysOf(queue string) (keys, error) {
	if !naming.ValidName(queue) {
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

// all returns the four names.
func (k keys) all() []string { return []string{k.jobs, k.progress, k.broken, k.failed} }
