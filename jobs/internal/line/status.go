package line

import (
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Status is how the leader of a queue describes it.
type Status struct {
	Node      string         `json:"node"`
	Limit     int64          `json:"limit"` // in thousandths; 0: none
	Strict    bool           `json:"strict"`
	Order     jobstore.Order `json:"order"`
	Throttler bool           `json:"throttler"`
	Looked    time.Time      `json:"looked"`            // time of the last look
	Busy      bool           `json:"busy"`              // no worker was free for more jobs
	Refused   []jobstore.ID  `json:"refused,omitempty"` // the first jobs that the throttler did not start
}
