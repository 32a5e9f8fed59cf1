package pages

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// Limits of the groups of failures.
const (
	grouped   = 2000 // failed tasks that are read
	maxReads  = 5    // pages of them, which may be empty
	maxGroups = 20   // groups on the overview
)

// failure is a group of failed tasks with one cause.
type failure struct {
	Name, Queue, Class, Message string
	Count                       int
	First, Last                 time.Time
	Example                     task.ID
	Query                       string   // of the tasks of the group
	Dead                        bool     // the counts are those of dead letters
	Hours                       []hour   // the counts of the last day, the oldest first; nil: unknown
	Versions                    []string // of the nodes that ran the tasks, as far as these are alive
}

// hour counts the failures of one hour.
type hour struct {
	Since time.Time
	N     int
}

// day returns the hours of the day that ends at now.
func day(now time.Time) []hour {
	hours := make([]hour, 24)
	for i := range hours {
		hours[i].Since = now.Add(time.Duration(i-len(hours)) * time.Hour)
	}
	return hours
}

// Part returns the longest text of the message that each error of the group contains, to select its
// dead letters.
func (f *failure) Part() (longest string) {
	for part := range strings.SplitSeq(f.Message, removed) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return strings.TrimSpace(longest)
}

// Selects reports whether its name or Part selects the dead letters of the group. They do not for
// letters without a reason, and for the rest of a summary that has too many reasons.
func (f *failure) Selects() bool {
	return f.Name != "" || f.Part() != "" && f.Message != "other"
}

// Requeue returns the label of the button that requeues the dead letters of the group.
func (f *failure) Requeue() string {
	if f.Part() == "" {
		return "Requeue all of this name" // no text of the message tells the group from the others
	}
	return "Requeue"
}

// failures returns the groups of the failed tasks of the last day, the most recent first. more says
// that older failures were not read. Without a history it groups the dead letters of the queues.
func failures(ctx context.Context, api inspect.API) (groups []failure, more bool, err error) {
	byCause := make(map[string]*failure)
	q := inspect.TaskQuery{Query: "state:failed since:24h", Limit: inspect.MaxLimit}
	read, now, versions := 0, time.Now(), versionsOf(ctx, api)
	for range maxReads {
		page, err := api.ListTasks(ctx, q)
		if missing(err) {
			return deadGroups(ctx, api)
		}
		if err != nil {
			return nil, false, err
		}
		for i := range page.Tasks {
			add(byCause, &page.Tasks[i], now, versions)
		}
		read += len(page.Tasks)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
		if read >= grouped {
			break
		}
	}
	more = q.Cursor != ""
	for _, g := range byCause {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b failure) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Message, b.Message))
	})
	if len(groups) > maxGroups {
		groups, more = groups[:maxGroups], true
	}
	return groups, more, nil
}

// add adds a failed task to its group.
func add(groups map[string]*failure, t *inspect.Task, now time.Time, versions map[string]string) {
	message := cause(t.Error)
	key := t.Name + "\x00" + t.Queue + "\x00" + t.Class + "\x00" + message
	at := cmp.Or(t.Ended, t.Changed)
	g := groups[key]
	if g == nil {
		g = &failure{Name: t.Name, Queue: t.Queue, Class: t.Class, Message: message, First: at, Last: at, Example: t.ID, Hours: day(now)}
		g.Query = "state:failed since:24h name:" + quote(t.Name)
		if t.Queue != "" {
			g.Query += " queue:" + quote(t.Queue)
		}
		if t.Class != "" {
			g.Query += " class:" + quote(t.Class)
		}
		if part := g.Part(); part != "" {
			g.Query += " error~" + quote(part)
		}
		groups[key] = g
	}
	g.Count++
	if i := int(at.Sub(g.Hours[0].Since) / time.Hour); i >= 0 && i < len(g.Hours) {
		g.Hours[i].N++
	}
	if v := versions[t.Node]; v != "" && !slices.Contains(g.Versions, v) {
		g.Versions = append(g.Versions, v)
		slices.Sort(g.Versions)
	}
	if at.Before(g.First) {
		g.First = at
	}
	if at.After(g.Last) {
		g.Last, g.Example = at, t.ID
	}
}

// versionsOf returns the versions of the living nodes. Without an answer it returns none, because
// the groups are useful without them.
func versionsOf(ctx context.Context, api inspect.API) map[string]string {
	page, err := api.ListWorkers(ctx, inspect.WorkerQuery{Limit: inspect.MaxLimit})
	if err != nil {
		return nil
	}
	versions := make(map[string]string, len(page.Workers))
	for i := range page.Workers {
		versions[page.Workers[i].Node] = page.Workers[i].Version
	}
	return versions
}

// quote returns a value of a query.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// particular matches the parts of an error that differ from task to task: numbers, ids, and texts
// in quotes.
var particular = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b|\d+(?:\.\d+)*`)

const (
	maxCause = 200 // bytes of the text of a group
	removed  = "…" // stands for the removed parts
)

// cause returns the first line of an error without the parts that are particular to one task.
func cause(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > 4*maxCause {
		line = line[:4*maxCause]
	}
	line = particular.ReplaceAllString(strings.ToValidUTF8(line, "\uFFFD"), removed)
	if len(line) > maxCause {
		line = strings.ToValidUTF8(line[:maxCause], "") + removed
	}
	return line
}

// deadGroups groups the dead letters of queues by their reasons.
func deadGroups(ctx context.Context, api inspect.API) (groups []failure, more bool, err error) {
	queues, err := api.ListQueues(ctx, inspect.QueueQuery{Limit: inspect.MaxLimit})
	if err != nil {
		return nil, false, err
	}
	more = queues.Next != ""
	for i := range queues.Queues {
		q := &queues.Queues[i]
		if q.Dead <= 0 {
			continue
		}
		s, err := api.SummarizeDead(ctx, inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: q.Name}})
		if err != nil {
			return nil, false, err
		}
		more = more || s.More
		for _, g := range causes(s.Reasons) {
			g.Queue, g.First, g.Last, g.Dead = q.Name, s.Oldest, s.Newest, true
			groups = append(groups, g)
		}
		if len(groups) >= maxGroups {
			more = true
			break
		}
	}
	slices.SortFunc(groups, func(a, b failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Message, b.Message))
	})
	return groups[:min(len(groups), maxGroups)], more, nil
}

// causes groups the reasons of dead letters, the most frequent first.
func causes(reasons map[string]int) []failure {
	counts := make(map[string]int)
	for reason, n := range reasons {
		counts[cause(reason)] += n
	}
	groups := make([]failure, 0, len(counts))
	for message, n := range counts {
		groups = append(groups, failure{Message: message, Count: n})
	}
	slices.SortFunc(groups, func(a, b failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Message, b.Message))
	})
	return groups
}
