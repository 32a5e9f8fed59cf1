package resultstoretest

import (
	"strings"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// succeeded returns a simple terminal record for node with a new id.
func (w *world) succeeded(node string) resultstore.Record {
	at := time.Now().Truncate(time.Millisecond)
	return resultstore.Record{
		ID: w.id(), Name: "suite.task", State: task.StateSucceeded, Deliveries: 1,
		ContentType: "application/json", Result: []byte(`{"n":1}`),
		StartedAt: at.Add(-time.Second), FinishedAt: at,
		NodeID: "worker-1", ReplyTo: node, Correlation: "c-1",
	}
}

// with returns a copy of r after change.
func with(r resultstore.Record, change func(r *resultstore.Record)) resultstore.Record {
	change(&r)
	return r
}

// text draws valid UTF-8 of at most limit bytes. It prefers characters that break adapters: NUL,
// quotes, control characters and characters beyond the first Unicode plane.
func text(limit int) *rapid.Generator[string] {
	return rapid.Map(rapid.OneOf(
		rapid.StringN(0, -1, limit),
		rapid.StringOfN(rapid.SampledFrom([]rune("\x00\x01\t\r\n\"'\\%{}$;ä\u2028\ufeff😀\U0010FFFF")), 0, -1, limit),
	), func(s string) string {
		for !utf8.ValidString(s) || len(s) > limit {
			s = strings.ToValidUTF8(s[:len(s)-1], "")
		}
		return s
	})
}

// anyTime draws a time that a store must keep: the zero time, or one with nanoseconds in any zone
// after 1970.
func anyTime() *rapid.Generator[time.Time] {
	return rapid.OneOf(rapid.Just(time.Time{}), rapid.Custom(func(t *rapid.T) time.Time {
		ns := rapid.Int64Range(1, 8e18).Draw(t, "ns")
		zone := time.FixedZone("", rapid.IntRange(-12, 14).Draw(t, "zone")*3600)
		return time.Unix(0, ns).In(zone)
	}))
}

// record draws a terminal record of task id for node.
func record(id task.ID, node string) *rapid.Generator[resultstore.Record] {
	name := rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9._-]{0,40}`)
	return rapid.Custom(func(t *rapid.T) resultstore.Record {
		r := resultstore.Record{
			ID:          id,
			Name:        name.Draw(t, "name"),
			State:       rapid.SampledFrom([]task.State{task.StateSucceeded, task.StateFailed, task.StateRevoked, task.StateExpired}).Draw(t, "state"),
			Generation:  rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 1<<31-1)).Draw(t, "generation"),
			Deliveries:  rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 1<<31-1)).Draw(t, "deliveries"),
			Retries:     rapid.IntRange(0, 1<<31-1).Draw(t, "retries"),
			ContentType: rapid.SampledFrom([]string{"", "application/json", "application/msgpack", "text/plain; charset=utf-8"}).Draw(t, "type"),
			Result:      rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "result"),
			StartedAt:   anyTime().Draw(t, "started"),
			FinishedAt:  anyTime().Draw(t, "finished"),
			NodeID:      rapid.StringMatching(`[!-~]{0,64}`).Draw(t, "node"),
			ReplyTo:     node,
			Correlation: text(200).Draw(t, "correlation"),
			Life:        rapid.IntRange(0, 1<<31-1).Draw(t, "life"),
			TTL:         rapid.SampledFrom([]time.Duration{0, time.Hour, 36 * time.Hour}).Draw(t, "ttl"),
		}
		if rapid.Bool().Draw(t, "progress") {
			r.Progress = task.ProgressValue{
				Done: rapid.IntRange(0, 1<<31-1).Draw(t, "done"), Total: rapid.IntRange(0, 1<<31-1).Draw(t, "total"),
				Note: text(task.MaxProgressNote).Draw(t, "note"), At: anyTime().Draw(t, "reported"),
			}
		}
		if rapid.Bool().Draw(t, "error") {
			r.Error = &task.RemoteError{
				Type: text(100).Draw(t, "error type"), Message: text(task.MaxErrorText).Draw(t, "message"), Stack: text(2000).Draw(t, "stack"),
				Step: text(100).Draw(t, "step"), StepID: task.ID(text(100).Draw(t, "step id")),
				Module: text(100).Draw(t, "module"), Args: errorArgs().Draw(t, "error arguments"),
			}
		}
		if rapid.Bool().Draw(t, "relatives") {
			r.Parent, r.Group = task.ID(text(100).Draw(t, "parent")), task.ID(text(100).Draw(t, "group"))
			for range rapid.IntRange(0, 3).Draw(t, "children") {
				r.Children = append(r.Children, task.ID(text(100).Draw(t, "child")))
			}
		}
		return r
	})
}

// errorArgs draws the values of an error, of each type that a record keeps.
func errorArgs() *rapid.Generator[[]any] {
	value := rapid.OneOf(
		rapid.SampledFrom([]any{nil, true, int64(-1 << 63), uint64(1<<64 - 1), 2.0, -0.5, []byte{0, 0xff}, []any{}, map[string]any{"k": []any{int64(7), nil}}}),
		rapid.Map(text(50), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
	)
	return rapid.SliceOfN(value, 0, 5)
}
