package line

import (
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Status is the description of a queue that its leader stores in QueueLease.Status, as JSON.
type Status struct {
	Node       string         `json:"node"`
	Limit      int64          `json:"limit"` // in thousandths; 0: no limit
	Strict     bool           `json:"strict"`
	Order      jobstore.Order `json:"order"`
	Throttler  bool           `json:"throttler"`
	AdmittedAt time.Time      `json:"looked"` // time of the last admission
	Busy       bool           `json:"busy"`   // no worker was free for more jobs
	// the first jobs that the throttler did not start
	Refused []jobstore.ID `json:"refused,omitempty"`
}
