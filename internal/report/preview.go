package report

import (
	"fmt"

	"github.com/swarmiji/swarmiji/events"
)

// Preview returns a preview of p for an event; the event cuts it to its limit. It calls
// Report.Preview, or Describe if that is nil, p is empty or Report.Preview panics. secret means
// that p's type contains secrets: then Describe must not show the data. A nil Reporter returns "".
func (r *Reporter) Preview(p events.Payload, secret bool) (text string) {
	if r == nil {
		return ""
	}
	if r.cfg.Report.Preview == nil || len(p.Data) == 0 {
		return r.cfg.Describe(p.ContentType, p.Data, r.cfg.Report.Payloads && !secret)
	}
	defer func() {
		if v := recover(); v != nil {
			text = r.cfg.Describe(p.ContentType, p.Data, false)
			r.warn(fmt.Errorf("Preview panicked: %v", v))
		}
	}()
	return r.cfg.Report.Preview(p)
}
