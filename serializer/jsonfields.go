package serializer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// jsonFields is a JSON object that is being read. Each read removes its member, so that the unknown
// members remain. The first error is kept in err. A member with the value null counts as missing.
type jsonFields struct {
	members map[string]json.RawMessage
	err     error
}

// readFields decodes data as an object. data must have passed [ScanJSON].
func readFields(data []byte) *jsonFields {
	f := &jsonFields{}
	if err := json.Unmarshal(data, &f.members); err != nil || f.members == nil {
		f.err = errors.New("want an object")
	}
	return f
}

func (f *jsonFields) fail(name, want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%q: want %s", name, want)
	}
}

// take removes a member and returns its value; nil if it is missing or null.
func (f *jsonFields) take(name string) json.RawMessage {
	raw, ok := f.members[name]
	if !ok {
		return nil
	}
	delete(f.members, name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// into decodes a member into v and reports whether it exists. want describes the type, for the
// error.
func (f *jsonFields) into(name string, v any, want string) bool {
	raw := f.take(name)
	if raw == nil || f.err != nil {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		f.fail(name, want)
		return false
	}
	return true
}

func (f *jsonFields) text(name string) string {
	var s string
	f.into(name, &s, "a string")
	return s
}

// integer reads a whole number, clamped to int64. 3.0 and 3e2 are whole numbers too.
func (f *jsonFields) integer(name string) (int64, bool) {
	raw := f.take(name)
	if raw == nil || f.err != nil {
		return 0, false
	}
	n, ok := wholeNumber(raw)
	if !ok {
		f.fail(name, "a whole number")
	}
	return n, ok
}

func wholeNumber(raw json.RawMessage) (int64, bool) {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n, true
	}
	var x float64
	if raw[0] == '"' || json.Unmarshal(raw, &x) != nil || x != math.Trunc(x) {
		return 0, false
	}
	switch {
	case x >= math.MaxInt64:
		return math.MaxInt64, true
	case x <= math.MinInt64:
		return math.MinInt64, true
	}
	return int64(x), true
}

func (f *jsonFields) count(name string) int {
	n, _ := f.integer(name)
	return Count(n)
}

// moment reads milliseconds since 1970 or an RFC 3339 time. "" is the zero time, explicitly set.
func (f *jsonFields) moment(name string) (time.Time, bool) {
	raw := f.take(name)
	if raw == nil || f.err != nil {
		return time.Time{}, false
	}
	if ms, ok := wholeNumber(raw); ok {
		return FromMilli(ms), true
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return time.Time{}, true
		}
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return FromMilli(Milli(t)), true
		}
	}
	f.fail(name, "milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z")
	return time.Time{}, false
}

func (f *jsonFields) optText(name string) task.Opt[string] {
	var s string
	if f.into(name, &s, "a string") {
		return task.Set(s)
	}
	return task.Opt[string]{}
}

func (f *jsonFields) optBool(name string) task.Opt[bool] {
	var v bool
	if f.into(name, &v, "true or false") {
		return task.Set(v)
	}
	return task.Opt[bool]{}
}

func (f *jsonFields) optInt(name string, low, high int64) task.Opt[int] {
	if n, ok := f.integer(name); ok {
		return task.Set(int(min(max(n, low), high)))
	}
	return task.Opt[int]{}
}

func (f *jsonFields) optDuration(name string) task.Opt[time.Duration] {
	if n, ok := f.integer(name); ok {
		return task.Set(FromMillis(n))
	}
	return task.Opt[time.Duration]{}
}

func (f *jsonFields) optTime(name string) task.Opt[time.Time] {
	if t, ok := f.moment(name); ok {
		return task.Set(t)
	}
	return task.Opt[time.Time]{}
}

// metadata reads the members of the metadata. queue is the name of the member for the queue.
func (f *jsonFields) metadata(queue string) task.Metadata {
	return task.Metadata{
		Queue:         f.optText(queue),
		MaxRetries:    f.optInt("max_retries", math.MinInt32, math.MaxInt32),
		RetryDelay:    f.optDuration("retry_delay_ms"),
		Retry:         f.optText("retry"),
		RateLimit:     f.optText("rate_limit"),
		TimeLimit:     f.optDuration("time_limit_ms"),
		SoftTimeLimit: f.optDuration("soft_time_limit_ms"),
		IgnoreResult:  f.optBool("ignore_result"),
		Idempotent:    f.optBool("idempotent"),
		DeadLetter:    f.optBool("dead_letter"),
		Serializer:    f.optText("serializer"),
		Compression:   f.optText("compress"),
		ResultStore:   f.optText("result_store"),
		ResultTTL:     f.optDuration("result_ttl_ms"),
		Priority:      f.optInt("priority", 0, task.MaxPriority),
		NotBefore:     f.optTime("not_before"),
		Expires:       f.optTime("expires"),
	}
}

// args reads the arguments: a JSON value in "args", or any bytes as base64 in "args_base64".
// Without both and without a content type, the arguments are the JSON value null, which fits any
// argument type.
func (f *jsonFields) args() (contentType string, args []byte) {
	contentType = f.text("content_type")
	raw, given := f.members["args"]
	delete(f.members, "args")
	var encoded string
	inBase64 := f.into("args_base64", &encoded, "a string")
	switch {
	case given && inBase64:
		f.fail("args", "either args or args_base64")
	case given:
		if contentType == "" {
			contentType = ContentJSON
		} else if MediaType(contentType) != ContentJSON {
			f.fail("content_type", ContentJSON+" with args, or args_base64")
		}
		return contentType, raw
	case inBase64:
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			f.fail("args_base64", "base64")
		}
		return contentType, data
	case contentType == "":
		return ContentJSON, []byte("null")
	}
	return contentType, nil
}

// links reads a list of links. left is the number of links that the envelope may still have.
func (f *jsonFields) links(name string, left *int) []task.Link {
	var list []json.RawMessage
	if !f.into(name, &list, "a list of links") {
		return nil
	}
	links := make([]task.Link, 0, min(len(list), MaxLinks))
	for _, raw := range list {
		links = append(links, f.link(name, raw, left))
		if f.err != nil {
			return nil
		}
	}
	return links
}

func (f *jsonFields) link(name string, raw json.RawMessage, left *int) task.Link {
	if *left--; *left < 0 {
		f.fail(name, fmt.Sprintf("at most %d links", MaxLinks))
		return task.Link{}
	}
	in := readFields(raw)
	l := task.Link{
		ID:    task.ID(in.text("id")),
		Queue: in.text("queue"),
		Name:  in.text("task"),
		Meta:  in.metadata("meta_queue"),
		Feed:  task.Feed(in.text("feed")),
		Field: in.text("field"),
	}
	l.ContentType, l.Args = in.linkArgs()
	l.Policy, l.Group = task.Policy(in.text("policy")), task.ID(in.text("group"))
	l.GroupIndex, l.GroupSize = in.size("group_index"), in.size("group_size")
	l.ReplyTo = in.text("reply_to")
	in.into("headers", &l.Headers, "an object of strings")
	in.into("without_headers", &l.Without, "a list of strings")
	l.Correlation = in.optText("correlation")
	in.into("each", &l.Each, "true or false")
	in.into("last", &l.Last, "true or false")
	l.Members = in.links("members", left)
	if chord := in.take("chord"); chord != nil {
		c := in.link("chord", chord, left)
		l.Chord = &c
	}
	l.Then = in.links("then", left)
	l.Else = in.links("else", left)
	if in.err != nil && f.err == nil {
		f.err = fmt.Errorf("%q: %w", name, in.err)
	}
	return l
}

// size reads a group index or a group size. It refuses values out of range instead of clamping
// them, because another index is another task.
func (f *jsonFields) size(name string) int {
	n, ok := f.integer(name)
	if ok && n != int64(Count(n)) {
		f.fail(name, "0 to 2147483647")
	}
	return Count(n)
}

// linkArgs is args for a link. A link may have no arguments.
func (f *jsonFields) linkArgs() (contentType string, args []byte) {
	_, given := f.members["args"]
	_, inBase64 := f.members["args_base64"]
	if !given && !inBase64 {
		return f.text("content_type"), nil
	}
	return f.args()
}

// rest returns the remaining members as a JSON object, sorted by name; nil if all members were
// read.
func (f *jsonFields) rest() []byte {
	if len(f.members) == 0 {
		return nil
	}
	w := jsonWriter{}
	w.open()
	names := make([]string, 0, len(f.members))
	for name := range f.members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		w.raw(name, f.members[name])
	}
	w.shut()
	return w.b
}

// jsonWriter writes a JSON object member by member. Values that are JSON already are copied
// unchanged.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) open() { w.b = append(w.b, '{') }
func (w *jsonWriter) shut() { w.b = append(w.b, '}') }

func (w *jsonWriter) name(name string) {
	if last := w.b[len(w.b)-1]; last != '{' && last != '[' {
		w.b = append(w.b, ',')
	}
	w.b = append(appendJSON(w.b, name), ':')
}

// raw writes a member whose value is JSON.
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

func (w *jsonWriter) text(name, s string) {
	if s != "" {
		w.member(name, s)
	}
}

func (w *jsonWriter) count(name string, n int) {
	if n != 0 {
		w.member(name, n)
	}
}

func (w *jsonWriter) flag(name string, yes bool) {
	if yes {
		w.member(name, yes)
	}
}

func appendJSON(b []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return append(b, "null"...) // cannot happen: see the types of member
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

func (w *jsonWriter) moment(name string, t time.Time) {
	if t.IsZero() {
		w.member(name, "")
		return
	}
	w.member(name, FromMilli(Milli(t)).Format("2006-01-02T15:04:05.000Z07:00"))
}

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
	if t, ok := m.NotBefore.Get(); ok {
		w.moment("not_before", t)
	}
	if t, ok := m.Expires.Get(); ok {
		w.moment("expires", t)
	}
}

func writeOpt[T string | int | bool](w *jsonWriter, name string, o task.Opt[T]) {
	if v, ok := o.Get(); ok {
		w.member(name, v)
	}
}

func (w *jsonWriter) duration(name string, o task.Opt[time.Duration]) {
	if d, ok := o.Get(); ok {
		w.member(name, Millis(d))
	}
}

// args writes the arguments as jsonFields.args reads them. depth is the maximum nesting of a JSON
// value in "args"; a deeper one is written as base64.
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
