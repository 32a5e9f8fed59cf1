package serializertest

import (
	"encoding/hex"
	"math"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Envelopes generates envelopes with any fields set to any valid values: whole milliseconds, valid
// names and ids, and any texts.
func Envelopes() *rapid.Generator[*task.Envelope] {
	return rapid.Custom(func(t *rapid.T) *task.Envelope {
		e := &task.Envelope{
			Version:     rapid.IntRange(1, 3).Draw(t, "version"),
			ID:          IDs().Draw(t, "id"),
			Parent:      optional(t, "parent", IDs()),
			Group:       optional(t, "group", IDs()),
			GroupIndex:  rapid.IntRange(0, 1<<31-1).Draw(t, "group index"),
			Copy:        optional(t, "copy", rapid.StringN(0, 40, 160)),
			Burst:       optional(t, "burst", rapid.StringN(0, 40, 160)),
			Name:        optional(t, "name", names()),
			Meta:        Metadata().Draw(t, "meta"),
			Retries:     rapid.IntRange(0, 1<<31-1).Draw(t, "retries"),
			Crashes:     rapid.IntRange(0, 5).Draw(t, "crashes"),
			Parked:      rapid.IntRange(0, 5).Draw(t, "parked"),
			Life:        rapid.IntRange(0, 1<<31-1).Draw(t, "life"),
			SentAt:      optional(t, "sent at", moments()),
			Origin:      optional(t, "origin", rapid.StringN(0, 40, 160)),
			ReplyTo:     optional(t, "reply to", rapid.StringN(0, 40, 160)),
			Correlation: optional(t, "correlation", rapid.String()),
			Headers:     optional(t, "headers", rapid.MapOfN(rapid.String(), rapid.String(), 0, 20)),
			Then:        links(t, "then", 3),
			Else:        links(t, "else", 1),
		}
		if e.GroupIndex < math.MaxInt32 && rapid.Bool().Draw(t, "group size is known") {
			e.GroupSize = rapid.IntRange(e.GroupIndex+1, math.MaxInt32).Draw(t, "group size")
		}
		if rapid.Bool().Draw(t, "root") {
			if root := IDs().Draw(t, "root id"); root != e.ID {
				e.Root = root
			}
		}
		if rapid.Bool().Draw(t, "reply to origin") {
			e.ReplyTo = e.Origin
		}
		if rapid.Bool().Draw(t, "base") {
			m := Metadata().Draw(t, "base metadata")
			e.Base = &m
		}
		if rapid.Bool().Draw(t, "chord") {
			l := link(t, "chord", 1)
			e.Chord = &l
		}
		e.ContentType, e.Args = args(t)
		return e
	})
}

// IDs generates task ids: UUIDs in lower and upper case, and other printable texts.
func IDs() *rapid.Generator[task.ID] {
	return rapid.Custom(func(t *rapid.T) task.ID {
		if rapid.Bool().Draw(t, "uuid") {
			x := hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
			return task.ID(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:])
		}
		return task.ID(rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "text id"))
	})
}

// Metadata generates metadata with any keys set, also to their zero values.
func Metadata() *rapid.Generator[task.Metadata] {
	return rapid.Custom(func(t *rapid.T) task.Metadata {
		return task.Metadata{
			Queue:          opt(t, "queue", names()),
			MaxRetries:     opt(t, "max retries", rapid.IntRange(-1, 100)),
			RetryDelay:     opt(t, "retry delay", durations()),
			Retry:          opt(t, "retry", rapid.SampledFrom([]string{"", "delay", "exponential base=500 jitter=full on=net.OpError"})),
			RateLimit:      opt(t, "rate limit", rapid.SampledFrom([]string{"", "10/s", "5000/h"})),
			TimeLimit:      opt(t, "time limit", durations()),
			SoftTimeLimit:  opt(t, "soft time limit", durations()),
			IgnoreResult:   opt(t, "ignore result", rapid.Bool()),
			Idempotent:     opt(t, "idempotent", rapid.Bool()),
			DeadLetter:     opt(t, "dead letter", rapid.Bool()),
			Serializer:     opt(t, "serializer", contentTypes()),
			Compression:    opt(t, "compression", rapid.StringN(0, 20, 80)),
			ResultStore:    opt(t, "result store", rapid.StringN(0, 20, 80)),
			ResultTTL:      opt(t, "result ttl", durations()),
			Priority:       opt(t, "priority", rapid.IntRange(0, task.MaxPriority)),
			FairnessKey:    opt(t, "fairness key", rapid.StringMatching(`[^\pC]{0,60}`)),
			FairnessWeight: opt(t, "fairness weight", rapid.IntRange(1, task.MaxFairnessWeight)),
			NotBefore:      opt(t, "not before", maybeZero(moments())),
			Expires:        opt(t, "expires", maybeZero(moments())),
		}
	})
}

// optional draws a value of g, or the zero value.
func optional[T any](t *rapid.T, label string, g *rapid.Generator[T]) T {
	if rapid.Bool().Draw(t, label+" is set") {
		return g.Draw(t, label)
	}
	var zero T
	return zero
}

// opt draws a set value of g, or an unset one.
func opt[T any](t *rapid.T, label string, g *rapid.Generator[T]) task.Opt[T] {
	if rapid.Bool().Draw(t, label+" is set") {
		return task.Set(g.Draw(t, label))
	}
	return task.Opt[T]{}
}

// names generates valid names of tasks and queues.
func names() *rapid.Generator[string] {
	return rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,127}`)
}

// contentTypes generates "", the content types of this module and others.
func contentTypes() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		"", serializer.ContentMsgpack, serializer.ContentJSON, serializer.ContentRaw,
		"application/json; charset=utf-8", "image/png",
	})
}

// durations generates whole milliseconds from 0 to task.MaxTimeLimit.
func durations() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(0, int64(task.MaxTimeLimit/time.Millisecond)), func(ms int64) time.Duration {
		return time.Duration(ms) * time.Millisecond
	})
}

// moments generates times in whole milliseconds, from 1970 to the end of 9998, in UTC.
func moments() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(0, 253370764799999), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() })
}

// maybeZero generates the times of g and the zero time.
func maybeZero(g *rapid.Generator[time.Time]) *rapid.Generator[time.Time] {
	return rapid.OneOf(g, rapid.Just(time.Time{}))
}

// args draws any bytes and a content type, which need not fit.
func args(t *rapid.T) (contentType string, data []byte) {
	contentType = contentTypes().Draw(t, "content type")
	return contentType, rapid.OneOf(
		rapid.SliceOf(rapid.Byte()),
		rapid.SampledFrom([][]byte{
			{}, {0}, {0xff}, []byte("null"), []byte(`{"a":[1,2,{"b":"\u00e9"}]}`), []byte(" 1 "), []byte("[1,"), []byte("\x92\x01\x02"),
		}),
	).Draw(t, "args")
}

// links draws no links or one or two, with up to depth levels.
func links(t *rapid.T, label string, depth int) []task.Link {
	if depth == 0 || !rapid.Bool().Draw(t, label+" is set") {
		return nil
	}
	ls := make([]task.Link, rapid.IntRange(1, 2).Draw(t, label+" length"))
	for i := range ls {
		ls[i] = link(t, label, depth)
	}
	return ls
}

// link draws a link with any fields set, and up to depth-1 levels of links below it.
func link(t *rapid.T, label string, depth int) task.Link {
	l := task.Link{
		ID:    optional(t, label+" id", IDs()),
		Queue: optional(t, label+" queue", names()),
		Name:  names().Draw(t, label+" name"),
		Feed:  rapid.SampledFrom([]task.Feed{task.FeedWhole, task.FeedInto, task.FeedPrepend, task.FeedNone}).Draw(t, label+" feed"),
		Field: optional(t, label+" field", rapid.StringN(0, 20, 80)),
		Then:  links(t, label+" then", depth-1),
		Else:  links(t, label+" else", depth-1),
	}
	if depth > 1 && rapid.Bool().Draw(t, label+" is of a group") {
		l.Members = links(t, label+" members", depth-1)
		l.Each, l.Last = rapid.Bool().Draw(t, label+" each"), rapid.Bool().Draw(t, label+" last")
		l.Policy = rapid.SampledFrom([]task.Policy{task.FailFast, task.Collect, task.Ignore, task.Refer}).Draw(t, label+" policy")
		l.ReplyTo = optional(t, label+" reply to", rapid.StringN(0, 40, 160))
		l.Group = optional(t, label+" group", IDs())
		l.GroupIndex, l.GroupSize = rapid.IntRange(0, math.MaxInt32).Draw(t, label+" index"), rapid.IntRange(0, math.MaxInt32).Draw(t, label+" size")
		chord := link(t, label+" chord", depth-1)
		l.Chord = &chord
	}
	if rapid.Bool().Draw(t, label+" has its own headers") {
		l.Headers = rapid.MapOfN(rapid.String(), rapid.String(), 0, 5).Draw(t, label+" headers")
		l.Without = rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, label+" without")
		l.Correlation = task.Set(rapid.StringN(0, 20, 80).Draw(t, label+" correlation"))
	}
	if rapid.Bool().Draw(t, label+" meta is set") {
		l.Meta = Metadata().Draw(t, label+" meta")
	}
	if rapid.Bool().Draw(t, label+" args are set") {
		l.ContentType, l.Args = args(t)
	}
	return l
}
