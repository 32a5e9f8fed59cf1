package events

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// decoder reads the events of one message.
type decoder struct {
	scanner
	events []Event
	// last holds the most recent value of each text field. A field with the same text shares its
	// memory.
	last Event
}

// event reads one map, normalizes its event, appends it to d.events and stores its texts in d.last.
// The values of Fields are counted from 0 for each event. Returns ErrMalformed for an invalid event
// and for more than MaxBatch events.
func (d *decoder) event() error {
	if len(d.events) == MaxBatch {
		return d.fail("too many events")
	}
	var e Event
	d.values = 0
	err := d.members(func(key []byte) error { return d.member(&e, key) })
	if err != nil {
		return err
	}
	if ofWorker(e.Type) {
		if err := e.takeWorker(); err != nil {
			return err
		}
	}
	if err := Normalize(&e); err != nil {
		return err
	}
	if d.events == nil {
		d.events = make([]Event, 0, min(MaxBatch, 1+len(d.data)/roughSize))
	}
	d.events = append(d.events, e)
	d.remember(&e)
	return nil
}

// roughSize is a high estimate of the bytes of an event in a message.
const roughSize = 200

// remember stores the texts of e in d.last. Empty texts do not replace earlier ones, because the
// next event may be of a type that has the field.
func (d *decoder) remember(e *Event) {
	for _, t := range [...]struct {
		to   *string
		text string
	}{
		{(*string)(&d.last.TaskID), string(e.TaskID)},
		{&d.last.NodeID, e.NodeID},
		{&d.last.Name, e.Name},
		{&d.last.Args, e.Args},
		{&d.last.Queue, e.Queue},
		{&d.last.Exchange, e.Exchange},
		{&d.last.RoutingKey, e.RoutingKey},
		{&d.last.Result, e.Result},
		{&d.last.Exception, e.Exception},
		{&d.last.Stack, e.Stack},
	} {
		if t.text != "" {
			*t.to = t.text
		}
	}
}

// typeName reads the type of an event into *to; null is "". The types of task events share
// constants, because they alternate in a message. Another text is cut to MaxText bytes. Returns
// ErrMalformed for a value that is not a text.
func (d *decoder) typeName(to *string) error {
	if d.word("null") {
		*to = ""
		return nil
	}
	t, err := d.text()
	if err != nil {
		return err
	}
	for _, known := range [...]string{TaskSent, TaskReceived, TaskStarted, TaskSucceeded, TaskFailed, TaskRevoked, TaskAwaiting} {
		if string(t) == known {
			*to = known
			return nil
		}
	}
	*to = cut(string(t), MaxText)
	return nil
}

// member reads the value of the member key into its field of e, or into e.Fields if no field has
// that name. Returns ErrMalformed for a value of a wrong type or out of range.
func (d *decoder) member(e *Event, key []byte) error {
	switch string(key) {
	case "type":
		return d.typeName(&e.Type)
	case "task-id":
		return d.string((*string)(&e.TaskID), string(d.last.TaskID))
	case "node-id":
		return d.string(&e.NodeID, d.last.NodeID)
	case "timestamp":
		return d.time(&e.Time)
	case "name":
		return d.string(&e.Name, d.last.Name)
	case "args":
		return d.string(&e.Args, d.last.Args)
	case "retries":
		return d.count(&e.Retries)
	case "queue":
		return d.string(&e.Queue, d.last.Queue)
	case "exchange":
		return d.string(&e.Exchange, d.last.Exchange)
	case "routing_key":
		return d.string(&e.RoutingKey, d.last.RoutingKey)
	case "pid":
		return d.count(&e.PID)
	case "runtime-ms":
		return d.duration(&e.Runtime)
	case "pool-ms":
		return d.duration(&e.Pool)
	case "result":
		return d.string(&e.Result, d.last.Result)
	case "exception":
		return d.string(&e.Exception, d.last.Exception)
	case "stack-trace":
		return d.string(&e.Stack, d.last.Stack)
	case "retry":
		return d.bool(&e.Retry)
	}
	name := string(key)
	v, err := d.value(1)
	if err != nil {
		return err
	}
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Fields[name] = v
	return nil
}

// string reads a text or null, which is "", into *to. A text that equals like shares its memory. A
// text above MaxText is cut. Returns ErrMalformed for a value of another type.
func (d *decoder) string(to *string, like string) error {
	if d.word("null") {
		*to = ""
		return nil
	}
	t, err := d.text()
	if err != nil {
		return err
	}
	switch {
	case string(t) == like:
		*to = like
	case len(t) > MaxText:
		// Normalize cuts to smaller limits; this cut only frees the memory of a very long text.
		*to = cut(string(t), MaxText)
	default:
		*to = string(t)
	}
	return nil
}

// bool reads true, false or null into *to. null is false. Returns ErrMalformed for another value.
func (d *decoder) bool(to *bool) error {
	switch {
	case d.word("true"):
		*to = true
	case d.word("false"), d.word("null"):
		*to = false
	default:
		return d.fail("want true or false")
	}
	return nil
}

// whole reads a number from 0 to most and cuts off its fraction. null is 0. Returns ErrMalformed
// for another value or a number out of range.
func (d *decoder) whole(most int64) (int64, error) {
	if d.word("null") {
		return 0, nil
	}
	f, err := d.float()
	if err != nil {
		return 0, err
	}
	if f < 0 || f > float64(most) {
		return 0, d.fail("number out of range")
	}
	return int64(f), nil
}

// count reads a count from 0 to 2^31-1 into *to. null is 0. Returns ErrMalformed for another
// value.
func (d *decoder) count(to *int) error {
	n, err := d.whole(math.MaxInt32)
	*to = int(n)
	return err
}

// time reads a time in milliseconds since 1970, without the fraction, into *to. null and 0 are the
// zero time. Returns ErrMalformed for a time after the year 9999, a negative number or another
// value.
func (d *decoder) time(to *time.Time) error {
	ms, err := d.whole(latest)
	*to = fromMillis(ms)
	return err
}

// duration reads milliseconds with a fraction into *to. null is 0. A number without an exponent and
// with at most six decimal places is read exactly. Returns ErrMalformed for a negative or too large
// number or another value.
func (d *decoder) duration(to *time.Duration) error {
	if d.word("null") {
		*to = 0
		return nil
	}
	t, err := d.number()
	if err != nil {
		return err
	}
	if exact, ok := exactMillis(t); ok {
		*to = exact
		return nil
	}
	ms, err := strconv.ParseFloat(string(t), 64)
	ns := ms * float64(time.Millisecond)
	if err != nil || ms < 0 || ns >= math.MaxInt64 {
		return d.fail("duration out of range")
	}
	*to = time.Duration(math.Round(ns))
	return nil
}

// exactMillis converts the form that appendMillis writes. It returns false for any other form or a
// value out of range.
func exactMillis(t []byte) (time.Duration, bool) {
	before, after, _ := bytes.Cut(t, []byte{'.'})
	if len(after) > 6 {
		return 0, false
	}
	ms, err := strconv.ParseUint(string(before), 10, 63)
	if err != nil || ms > math.MaxInt64/uint64(time.Millisecond) {
		return 0, false
	}
	var rest uint64
	for i := range 6 {
		rest *= 10
		if i < len(after) {
			c := after[i]
			if c < '0' || c > '9' {
				return 0, false
			}
			rest += uint64(c - '0')
		}
	}
	ns := ms*uint64(time.Millisecond) + rest
	return time.Duration(ns), ns <= math.MaxInt64
}
