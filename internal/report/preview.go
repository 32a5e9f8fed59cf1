package report

import (
	"fmt"

	"github.com/swarmiji/swarmiji/events"
)

// Preview returns what of p goes into an event, which cuts it to its limit. secret: p is of a type with secrets.
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
