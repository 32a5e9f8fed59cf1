package serializer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// jsonWriter writes a JSON object member by member. Values that are JSON already are copied
// unchanged.
type jsonWriter struct{ b []byte }

// open begins an object.
func (w *jsonWriter) open() { w.b = append(w.b, '{') }

// shut ends an object.
func (w *jsonWriter) shut() { w.b = append(w.b, '}') }

// name writes the name of a member and a colon, with a comma in front unless it is the first
// member. The caller writes the value.
func (w *jsonWriter) name(name string) {
	if last := w.b[len(w.b)-1]; last != '{' && last != '[' {
		w.b = append(w.b, ',')
	}
	w.b = append(appendJSON(w.b, name), ':')
}

// raw writes a member whose value is JSON already.
func (w *jsonWriter) raw(name string, value []byte) {
	w.name(name)
	w.b = append(w.b, value...)
}

// member writes a member with a value that can always be encoded: a string, number, boolean or map
// of strings.
func (w *jsonWriter) member(name string, v any) {
	w.name(name)
	w.b = appendJSON(w.b, v)
}

// text writes a member with a string. It writes nothing for "".
func (w *jsonWriter) text(name, s string) {
	if s != "" {
		w.member(name, s)
	}
}

// count writes a member with a number. It writes nothing for 0.
func (w *jsonWriter) count(name string, n int) {
	if n != 0 {
		w.member(name, n)
	}
}

// flag writes a member with the value true. It writes nothing for false.
func (w *jsonWriter) flag(name string, yes bool) {
	if yes {
		w.member(name, yes)
	}
}

// appendJSON appends v as JSON to b and returns the result. v has a type that can always be
// encoded, see member.
func appendJSON(b []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return append(b, "null"...) // cannot happen: see the types of member
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// moment writes a member with a time in RFC 3339 form, with milliseconds. The zero time is "".
func (w *jsonWriter) moment(name string, t time.Time) {
	if t.IsZero() {
		w.member(name, "")
		return
	}
	w.member(name, FromMilli(Milli(t)).Format("2006-01-02T15:04:05.000Z07:00"))
}

// metadata writes a member for each set field of m. queue is the name of the member with the queue.
func (w *jsonWriter) metadata(m *task.Metadata, queue string) {
	writeOpt(w, queue, m.Queue)
	writeOpt(w, "max_retries", m.MaxRetries)
	w.duration("retry_delay_ms", m.RetryDelay)
	writeOpt(w, "retry", m.Retry)
	writeOpt(w, "rate_limit", m.RateLimit)
	w.duration("time_limit_ms", m.TimeLimit)
	w.duration("soft_time_limit_ms", m.SoftTimeLimit)
	writeOpt(w, "ignore_result", m.IgnoreResult)
	writeOpt(w, "idempotent", m.Idempotent)
	writeOpt(w, "dead_letter", m.DeadLetter)
	writeOpt(w, "serializer", m.Serializer)
	writeOpt(w, "compress", m.Compression)
	writeOpt(w, "result_store", m.ResultStore)
	w.duration("result_ttl_ms", m.ResultTTL)
	writeOpt(w, "priority", m.Priority)
	writeOpt(w, "fairness_key", m.FairnessKey)
	writeOpt(w, "fairness_weight", m.FairnessWeight)
	if t, ok := m.NotBefore.Get(); ok {
		w.moment("not_before", t)
	}
	if t, ok := m.Expires.Get(); ok {
		w.moment("expires", t)
	}
}

// writeOpt writes a member with the value of o. It writes nothing if o is unset.
func writeOpt[T string | int | bool](w *jsonWriter, name string, o task.Opt[T]) {
	if v, ok := o.Get(); ok {
		w.member(name, v)
	}
}

// duration writes a member with o in milliseconds. It writes nothing if o is unset.
func (w *jsonWriter) duration(name string, o task.Opt[time.Duration]) {
	if d, ok := o.Get(); ok {
		w.member(name, Millis(d))
	}
}

// args writes the arguments as jsonFields.args reads them: as JSON in "args" or as base64 in
// "args_base64". depth is the maximum nesting of a JSON value in "args"; a deeper one is written as
// base64.
func (w *jsonWriter) args(contentType string, args []byte, depth int) {
	if len(args) > 0 && MediaType(contentType) == ContentJSON &&
		len(bytes.TrimSpace(args)) == len(args) && scanJSON(args, depth) == nil {
		if contentType != ContentJSON {
			w.member("content_type", contentType)
		}
		w.raw("args", args)
		return
	}
	w.text("content_type", contentType)
	if args != nil || contentType == "" {
		w.member("args_base64", base64.StdEncoding.EncodeToString(args))
	}
}

// links writes a member with a list of links. It writes nothing for an empty list. depth is the
// nesting that is left for the member; see args.
func (w *jsonWriter) links(name string, links []task.Link, depth int) {
	if len(links) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i := range links {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.link(&links[i], depth-2) // the list and the object are two levels
	}
	w.b = append(w.b, ']')
}

// link writes a link and the links below it as an object. depth is the nesting that is left inside
// of the object; see args.
func (w *jsonWriter) link(l *task.Link, depth int) {
	w.open()
	w.text("task", l.Name)
	w.text("id", string(l.ID))
	w.text("queue", l.Queue)
	if l.Args != nil {
		w.args(l.ContentType, l.Args, max(depth, 0))
	} else {
		w.text("content_type", l.ContentType)
	}
	w.text("feed", string(l.Feed))
	w.text("field", l.Field)
	w.text("policy", string(l.Policy))
	w.text("group", string(l.Group))
	w.count("group_index", l.GroupIndex)
	w.count("group_size", l.GroupSize)
	w.text("reply_to", l.ReplyTo)
	if len(l.Headers) > 0 {
		w.member("headers", l.Headers)
	}
	if len(l.Without) > 0 {
		w.member("without_headers", l.Without)
	}
	writeOpt(w, "correlation", l.Correlation)
	w.flag("each", l.Each)
	w.flag("last", l.Last)
	w.metadata(&l.Meta, "meta_queue")
	w.links("members", l.Members, depth)
	if l.Chord != nil {
		w.name("chord")
		w.link(l.Chord, depth-1)
	}
	w.links("then", l.Then, depth)
	w.links("else", l.Else, depth)
	w.shut()
}
