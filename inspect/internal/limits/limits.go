// Package limits describes limits for people.
package limits

import (
	"fmt"
	"strings"

	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Figures returns the numbers of a limit.
func Figures(l *settings.Limit) string {
	var all []string
	if l.Rate != "" {
		all = append(all, l.Rate)
	}
	if l.Concurrency > 0 {
		all = append(all, fmt.Sprintf("%d at once", l.Concurrency))
	}
	return strings.Join(all, " and ")
}

// Full reports whether a permit has no place left. Then it names one of its holders, and the task
// of that holder if package limit has made its name.
func Full(u limit.Usage, p limit.Permit) (holder string, id task.ID, full bool) {
	if p.Max == 0 || u.Held+max(p.Weight, 1) <= p.Max || len(u.Holders) == 0 {
		return "", "", false
	}
	holder = u.Holders[0].Name
	if name, _, ok := strings.Cut(holder, "/"); ok && task.ID(name).Check() == nil {
		id = task.ID(name)
	}
	return holder, id, true
}
