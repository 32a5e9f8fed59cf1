package events

import (
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits of a message.
const (
	MaxBatch = 100 // events in one message
	// largest message that Decode accepts, in bytes; messages of a [Batcher] are far smaller
	MaxMessage = 4 << 20
)

// Encode returns 1 to [MaxBatch] events as one message of the wire format. A message is a JSON list
// of maps with the field names of each type. Values are as [Normalize] describes them.
//
//   - "timestamp" is in whole milliseconds since 1970, UTC.
//   - "runtime-ms" and "pool-ms" are in milliseconds with a fraction.
//   - All fields of a type are written, also empty ones, except an empty "task-id".
//
// Encode neither changes nor keeps es. Returns [ErrMalformed] for a wrong number of events, or an
// event that Normalize refuses.
func Encode(es []Event) ([]byte, error) {
	if len(es) == 0 || len(es) > MaxBatch {
		return nil, fmt.Errorf("%w: a message of %d events; it must have 1 to %d", ErrMalformed, len(es), MaxBatch)
	}
	dst := make([]byte, 0, 256*len(es))
	for i := range es {
		if err := es[i].check(); err != nil {
			return nil, err
		}
		if i == 0 {
			dst = append(dst, '[')
		} else {
			dst = append(dst, ',')
		}
		dst = appendEvent(dst, &es[i])
	}
	return append(dst, ']'), nil
}

// Decode returns the events of a message, which is a list of 1 to [MaxBatch] maps or a single map.
// Every event is as [Normalize] describes. The events share no memory with data, and their size is
// at most a small multiple of it.
//
//   - Members with other names than those of the wire format become Fields.
//   - A null value counts as absent.
//   - Of two members with one name the last counts.
//
// Returns [ErrMalformed] in these cases:
//
//   - data is larger than [MaxMessage] or is not JSON of this form.
//   - A field has a wrong type, or the type or task-id is invalid.
//   - Nesting or the number of values exceeds the limits.
func Decode(data []byte) ([]Event, error) {
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("%w: the message has %d bytes, at most %d are allowed", ErrMalformed, len(data), MaxMessage)
	}
	d := decoder{scanner: scanner{data: data}}
	var err error
	if d.peek() == '{' {
		err = d.event()
	} else {
		err = d.elements(d.event)
	}
	if err != nil {
		return nil, err
	}
	if len(d.events) == 0 {
		return nil, d.fail("the list has no event")
	}
	if d.peek(); d.pos < len(data) {
		return nil, d.fail("more than one value")
	}
	return d.events, nil
}

// appendEvent appends e as a JSON object. The Type and TaskID of e must be valid; other fields are
// normalized while they are written.
func appendEvent(dst []byte, e *Event) []byte {
	dst = append(dst, `{"type":"`...)
	dst = appendEscaped(dst, e.Type)
	dst = append(dst, '"')
	if e.TaskID != "" {
		dst = append(dst, `,"task-id":"`...)
		dst = appendEscaped(dst, string(e.TaskID))
		dst = append(dst, '"')
	}
	dst = appendText(dst, `,"node-id":"`, e.NodeID, maxLabel)
	dst = appendInt(dst, `,"timestamp":`, toMillis(e.Time))
	has := fieldsOf(e.Type)
	if has&hasTask != 0 {
		dst = appendText(dst, `,"name":"`, e.Name, maxLabel)
		dst = appendText(dst, `,"args":"`, e.Args, MaxPreview)
		dst = appendInt(dst, `,"retries":`, int64(count(e.Retries)))
		dst = appendText(dst, `,"queue":"`, e.Queue, maxLabel)
	}
	if has&hasRoute != 0 {
		dst = appendText(dst, `,"exchange":"`, e.Exchange, maxLabel)
		dst = appendText(dst, `,"routing_key":"`, e.RoutingKey, maxLabel)
	}
	if has&hasPID != 0 {
		dst = appendInt(dst, `,"pid":`, int64(count(e.PID)))
	}
	if has&hasRun != 0 {
		dst = appendMillis(append(dst, `,"runtime-ms":`...), e.Runtime)
		dst = appendMillis(append(dst, `,"pool-ms":`...), e.Pool)
	}
	if has&hasResult != 0 {
		dst = appendText(dst, `,"result":"`, e.Result, MaxPreview)
	}
	if has&hasError != 0 {
		dst = appendText(dst, `,"exception":"`, e.Exception, MaxText)
		dst = appendText(dst, `,"stack-trace":"`, e.Stack, MaxText)
		dst = strconv.AppendBool(append(dst, `,"retry":`...), e.Retry)
	}
	if has&hasWorker != 0 && e.Worker != nil {
		dst = appendWorker(dst, e.Worker)
	}
	if len(e.Fields) > 0 {
		fields := normalFields(e.Type, e.Fields)
		for _, k := range sortedKeys(fields) {
			dst = append(dst, `,"`...)
			dst = appendEscaped(dst, k)
			dst = append(dst, `":`...)
			dst = appendValue(dst, fields[k])
		}
	}
	return append(dst, '}')
}

// appendText appends a member with a text value, cut to limit bytes. name holds the member's name
// with all punctuation up to the opening quote.
func appendText(dst []byte, name, s string, limit int) []byte {
	dst = append(dst, name...)
	if len(s) <= limit && isPlain(s) {
		dst = append(dst, s...) // nearly all texts take this path, which reads each byte once
	} else {
		dst = appendEscaped(dst, cut(s, limit))
	}
	return append(dst, '"')
}

// isPlain reports whether s is ASCII and needs no escape in a JSON string.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendInt appends a member with a whole number. name holds the member's name with all
// punctuation.
func appendInt(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

// appendMillis appends d in milliseconds, exactly: with up to six digits after the point. It
// appends 0 for a negative d.
func appendMillis(dst []byte, d time.Duration) []byte {
	d = max(d, 0)
	dst = strconv.AppendInt(dst, int64(d/time.Millisecond), 10)
	rest := int64(d % time.Millisecond)
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := int64(time.Millisecond / 10); rest > 0; unit /= 10 {
		dst = append(dst, byte('0'+rest/unit))
		rest %= unit
	}
	return dst
}

// appendEscaped appends s, which must be valid UTF-8, as the content of a JSON string, without
// the quotes. It escapes only quotes, backslashes and control characters.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, s[start:]...)
}

// appendValue appends v as JSON. v has a type that normalValue returns: nil, bool, float64, string,
// []any or map[string]any. Maps are written in the order of their keys.
func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case float64:
		format := byte('f')
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			format = 'e'
		}
		return strconv.AppendFloat(dst, v, format, -1, 64)
	case string:
		dst = append(dst, '"')
		dst = appendEscaped(dst, v)
		return append(dst, '"')
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, x)
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '"')
			dst = appendEscaped(dst, k)
			dst = append(dst, '"', ':')
			dst = appendValue(dst, v[k])
		}
		return append(dst, '}')
	default: // nil
		return append(dst, "null"...)
	}
}
