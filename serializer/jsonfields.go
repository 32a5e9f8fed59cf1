package serializer

import (
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

// readFields returns the members of data, a JSON object that has passed [ScanJSON]. If data is
// another JSON value, the result has an error in err and no members.
func readFields(data []byte) *jsonFields {
	f := &jsonFields{}
	if err := json.Unmarshal(data, &f.members); err != nil || f.members == nil {
		f.err = errors.New("want an object")
	}
	return f
}

// fail stores in f.err that the member name is not what want describes, unless f.err has an earlier
// error.
func (f *jsonFields) fail(name, want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%q: want %s", name, want)
	}
}

// take removes the member name and returns its value, or nil if it is missing or null.
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

// into removes the member name and decodes it into v. It returns true if it did. It returns false
// if the member is missing or null, and after an error. If the member has another type it stores an
// error with want, the description of the type.
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

// text removes the member name, a string, and returns it. It returns "" if the member is missing,
// and stores an error for another type.
func (f *jsonFields) text(name string) string {
	var s string
	f.into(name, &s, "a string")
	return s
}

// integer removes the member name, a whole number, and returns it, clamped to int64. 3.0 and 3e2
// are whole numbers too. It returns false if the member is missing, and for another value, for
// which it stores an error.
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

// wholeNumber returns the whole number in raw, a JSON value, clamped to int64. It returns false for
// another value. 3.0 and 3e2 are whole numbers too.
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

// count removes the member name, a whole number, and returns it clamped by [Count]. It returns 0 if
// the member is missing, and stores an error for another value.
func (f *jsonFields) count(name string) int {
	n, _ := f.integer(name)
	return Count(n)
}

// moment removes the member name, milliseconds since 1970 or an RFC 3339 time, and returns the
// time, clamped to the years 1970 to 9998. "" is the zero time, explicitly set. It returns false if
// the member is missing, and for another value, for which it stores an error.
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

// optText removes the member name, a string, and returns it. The result is unset if the member is
// missing. It stores an error for another type.
func (f *jsonFields) optText(name string) task.Opt[string] {
	var s string
	if f.into(name, &s, "a string") {
		return task.Set(s)
	}
	return task.Opt[string]{}
}

// optBool removes the member name, a boolean, and returns it. The result is unset if the member is
// missing. It stores an error for another type.
func (f *jsonFields) optBool(name string) task.Opt[bool] {
	var v bool
	if f.into(name, &v, "true or false") {
		return task.Set(v)
	}
	return task.Opt[bool]{}
}

// optInt removes the member name, a whole number, and returns it clamped to low and high. The
// result is unset if the member is missing. It stores an error for another value.
func (f *jsonFields) optInt(name string, low, high int64) task.Opt[int] {
	if n, ok := f.integer(name); ok {
		return task.Set(int(min(max(n, low), high)))
	}
	return task.Opt[int]{}
}

// optDuration removes the member name, milliseconds as a whole number, and returns the duration as
// [FromMillis] does. The result is unset if the member is missing. It stores an error for another
// value.
func (f *jsonFields) optDuration(name string) task.Opt[time.Duration] {
	if n, ok := f.integer(name); ok {
		return task.Set(FromMillis(n))
	}
	return task.Opt[time.Duration]{}
}

// optTime removes the member name, a time as moment reads it. The result is unset if the member is
// missing. It stores an error for another value.
func (f *jsonFields) optTime(name string) task.Opt[time.Time] {
	if t, ok := f.moment(name); ok {
		return task.Set(t)
	}
	return task.Opt[time.Time]{}
}

// metadata removes the members of the metadata and returns them. queue is the name of the member
// with the queue. It stores an error for a wrong type.
func (f *jsonFields) metadata(queue string) task.Metadata {
	return task.Metadata{
		Queue:          f.optText(queue),
		MaxRetries:     f.optInt("max_retries", math.MinInt32, math.MaxInt32),
		RetryDelay:     f.optDuration("retry_delay_ms"),
		Retry:          f.optText("retry"),
		RateLimit:      f.optText("rate_limit"),
		TimeLimit:      f.optDuration("time_limit_ms"),
		SoftTimeLimit:  f.optDuration("soft_time_limit_ms"),
		IgnoreResult:   f.optBool("ignore_result"),
		Idempotent:     f.optBool("idempotent"),
		DeadLetter:     f.optBool("dead_letter"),
		Serializer:     f.optText("serializer"),
		Compression:    f.optText("compress"),
		ResultStore:    f.optText("result_store"),
		ResultTTL:      f.optDuration("result_ttl_ms"),
		Priority:       f.optInt("priority", 0, task.MaxPriority),
		FairnessKey:    f.optText("fairness_key"),
		FairnessWeight: f.optInt("fairness_weight", 1, task.MaxFairnessWeight),
		NotBefore:      f.optTime("not_before"),
		Expires:        f.optTime("expires"),
	}
}

// args removes the members of the arguments and returns content type and arguments: a JSON value in
// "args", or any bytes as base64 in "args_base64". Without both and without a content type, the
// arguments are the JSON value null, which fits any argument type. It stores an error if both are
// given or one is invalid.
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

// links removes the member name, a list of links, and returns them. It returns nil if the member is
// missing, and after an error, which it stores. left is the number of links that the envelope may
// still have; links subtracts those that it has read.
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

// link returns the link in raw, a JSON object, with the links below it. Its unknown members are
// dropped. left is the number of links that the envelope may still have; link subtracts those that
// it has read. It stores an error with name, the member that raw is from.
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

// size removes the member name, a group index or a group size, and returns it. It stores an error
// for a value out of range instead of clamping it, because another index is another task.
func (f *jsonFields) size(name string) int {
	n, ok := f.integer(name)
	if ok && n != int64(Count(n)) {
		f.fail(name, "0 to 2147483647")
	}
	return Count(n)
}

// linkArgs reads the arguments of a link as args does. But a link may have no arguments: without
// "args" and "args_base64" it returns only the content type.
func (f *jsonFields) linkArgs() (contentType string, args []byte) {
	_, given := f.members["args"]
	_, inBase64 := f.members["args_base64"]
	if !given && !inBase64 {
		return f.text("content_type"), nil
	}
	return f.args()
}

// rest returns the members that were not removed as a JSON object, sorted by name. It returns nil
// if no member is left.
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
