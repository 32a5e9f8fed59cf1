// Package taskview turns records of the history of tasks into rows for people.
package taskview

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/utf"
)

// Facts returns the names and texts of the fields of a record that are not empty.
func Facts(r *history.Record) (rows [][2]string) {
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, [2]string{name, text})
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	add("name", r.Name)
	add("queue", r.Queue)
	add("state", State(r))
	add("node", r.Node)
	add("attempts", number(r.Attempts))
	add("requeued", number(r.Life))
	add("wait", Lasted(r.Wait))
	add("run", Lasted(r.Run))
	add("parent", string(r.Parent))
	add("root", string(r.Root))
	add("group", string(r.Group))
	keys := make([]string, 0, len(r.Headers))
	for k := range r.Headers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		add("header."+k, r.Headers[k])
	}
	add("args", r.Args)
	add("result", r.Result)
	if p := r.Progress; p != nil {
		add("progress", strings.TrimSpace(fmt.Sprintf("%d of %d %s", p.Done, p.Total, p.Note)))
	}
	add("class", r.Class)
	add("error", r.Error)
	return rows
}

// Head returns the names of the columns of Timeline.
func Head() []string { return []string{"TIME", "AFTER", "EVENT", "ATTEMPT", "NODE", "DETAIL"} }

// Timeline returns the rows of the timeline of a record.
func Timeline(r *history.Record) (rows [][]any) {
	for i := range r.Timeline {
		e := &r.Timeline[i]
		attempt := fmt.Sprint(e.Attempt)
		if e.Life > 0 {
			attempt += fmt.Sprintf(" of life %d", e.Life+1)
		}
		rows = append(rows, []any{e.Time, Lasted(e.Time.Sub(r.Timeline[0].Time)), string(e.Kind), attempt, e.Node, detail(e)})
	}
	return rows
}

// detail returns the facts of an entry beside its kind.
func detail(e *history.Entry) string {
	var parts []string
	if e.Queue != "" {
		parts = append(parts, "queue "+e.Queue)
	}
	if !e.Due.IsZero() {
		parts = append(parts, "not before "+e.Due.UTC().Format("2006-01-02 15:04:05.000Z"))
	}
	if e.Run > 0 {
		parts = append(parts, "ran "+e.Run.Round(time.Microsecond).String())
	}
	if e.Kind == history.KindProgress {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d of %d %s", e.Done, e.Total, e.Note)))
	}
	if e.DeadLetter {
		parts = append(parts, "dead-lettered")
	}
	if e.Error != "" {
		parts = append(parts, utf.Cut(strings.TrimSpace(e.Class+" "+e.Error), 80))
	}
	return strings.Join(parts, ", ")
}

// State returns the state of a record for people.
func State(r *history.Record) string {
	if r.DeadLetter {
		return history.StateDead
	}
	return string(r.State)
}

// Lasted returns a duration for people, "" for an unknown one.
func Lasted(d time.Duration) string {
	if d < 0 {
		return ""
	}
	return d.Round(time.Millisecond).String()
}

// Stack returns the stack of the last error in visible characters, on its lines.
func Stack(r *history.Record) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == ' ' || unicode.IsPrint(c) {
			return c
		}
		return '.'
	}, strings.ReplaceAll(strings.TrimSpace(r.Stack), "\t", "    "))
}
