package line

import (
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// Status is what the one who serves a queue tells of it.
type Status struct {
	Node      string         `json:"node"`
	Limit     int64          `json:"limit"` // in thousandths; 0: none
	Strict    bool           `json:"strict"`
	Order     jobstore.Order `json:"order"`
	Throttler bool           `json:"throttler"`
	Looked    time.Time      `json:"looked"`            // when it looked last
	Busy      bool           `json:"busy"`              // no worker was free for more then
	Refused   []jobstore.ID  `json:"refused,omitempty"` // the first jobs that the throttler did not start
}
