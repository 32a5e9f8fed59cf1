package natsbroker

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

// The headers of the adapter.
const (
	headerContentType = "Content-Type"
	headerGeneration  = "Swj-Generation"
	headerPriority    = "Swj-Priority"
	headerLane        = "Swj-Lane"       // 1 to 3; missing: 0
	headerExpires     = "Swj-Expires"    // Unix milliseconds
	headerNotBefore   = "Swj-Not-Before" // Unix milliseconds
	headerExtra       = "Swj-Extra"      // JSON, see extra
	headerReason      = "Swj-Reason"     // of a dead letter, JSON string
	headerStack       = "Swj-Stack"      // of a dead letter, JSON string
	headerAttempts    = "Swj-Attempts"   // of a dead letter
	// of a dead letter, Unix milliseconds; missing: when it was stored
	headerDied = "Swj-Died"
	// a notice: the message was moved; the consumer that receives it removes it
	headerMoved = "Swj-Moved"
)

// The headers of the server.
const (
	headerMsgID          = "Nats-Msg-Id"
	headerTTL            = "Nats-TTL"
	headerExpectedSeq    = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubj   = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerSchedule       = "Nats-Schedule"
	headerScheduleTarget = "Nats-Schedule-Target"
	headerScheduler      = "Nats-Scheduler"
	headerScheduleNext   = "Nats-Schedule-Next"
	headerBatchID        = "Nats-Batch-Id"
	headerBatchSequence  = "Nats-Batch-Sequence"
	headerBatchCommit    = "Nats-Batch-Commit"
)

const (
	// defaultPriority is the priority of a message without the header.
	defaultPriority = 100
	// maxHeaders limits the headers of a message, in bytes. The server allows 64 KiB and needs some of
	// them itself.
	maxHeaders = 60 << 10
)

// extra holds the parts of a message that fit into no plain header.
type extra struct {
	ContentType string            `json:"ct,omitempty"`
	Headers     map[string]value  `json:"h,omitempty"`
	Properties  map[string]string `json:"p,omitempty"`
	Key         string            `json:"k,omitempty"`
	Weight      int               `json:"w,omitempty"`
}

// value is a header value with its type. Exactly one field is set. X is a string that is not UTF-8.
type value struct {
	S *string `json:"s,omitempty"`
	X *[]byte `json:"x,omitempty"`
	B *[]byte `json:"b,omitempty"`
	T *bool   `json:"t,omitempty"`
	I *int64  `json:"i,omitempty"`
	F string  `json:"f,omitempty"`
}

// check returns an error if m cannot be sent: ErrTooLarge if the body is larger than
// Config.MaxBody, ErrMalformed if m is nil, its Generation negative, or its Key or Weight not
// valid.
func (b *Broker) check(m *broker.Message) error {
	if m == nil {
		return fmt.Errorf("%w: no message", broker.ErrMalformed)
	}
	if b.cfg.MaxBody > 0 && len(m.Body) > broker.BodyLimit(b.cfg.MaxBody, m.Generation) {
		return fmt.Errorf("%w: body of %d bytes, the limit is %d", broker.ErrTooLarge, len(m.Body), b.cfg.MaxBody)
	}
	if m.Generation < 0 {
		return fmt.Errorf("%w: generation %d", broker.ErrMalformed, m.Generation)
	}
	return broker.CheckFairness(m)
}

// encode returns m for a subject that must not hold a message yet: it expects sequence 0. The data
// is that of m, shared, and the package comment lists the headers. msgID, which may be empty, is
// the server's key for dropping repeated messages. Returns ErrMalformed or ErrTooLarge if the
// headers cannot be sent.
func encode(m *broker.Message, subject, msgID string) (*nats.Msg, error) {
	h := make(nats.Header, 4)
	vals := make([]string, 0, 7) // shared by the slices of the map
	set := func(k, v string) {
		vals = append(vals, v)
		h[k] = vals[len(vals)-1 : len(vals) : len(vals)]
	}
	set(headerExpectedSeq, "0")
	if msgID != "" {
		set(headerMsgID, msgID)
	}
	plainType := plainHeader(m.ContentType)
	if plainType && m.ContentType != "" {
		set(headerContentType, m.ContentType)
	}
	if m.Generation != 0 {
		set(headerGeneration, strconv.Itoa(m.Generation))
	}
	if m.Priority != defaultPriority {
		set(headerPriority, strconv.Itoa(m.Priority))
	}
	carried := len(m.Headers) // in the header Swj-Extra
	if lane := lanes.Of(m); lane > 0 {
		carried--
		set(headerLane, strconv.Itoa(lane))
	}
	if !m.Expires.IsZero() {
		set(headerExpires, strconv.FormatInt(m.Expires.UnixMilli(), 10))
	}
	if !plainType || carried > 0 || len(m.Properties) > 0 || m.Key != "" || m.Weight != 0 {
		s, err := encodeExtra(m, !plainType)
		if err != nil {
			return nil, err
		}
		set(headerExtra, s)
	}
	return &nats.Msg{Subject: subject, Header: h, Data: m.Body}, nil
}

// plainHeader reports whether the server returns s unchanged as a header's value: up to 1,024
// printable ASCII characters without a space at the ends, or nothing.
func plainHeader(s string) bool {
	if s == "" {
		return true
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' ' && len(s) <= 1024
}

// encodeExtra returns the value of the header Swj-Extra: headers and properties, and the content
// type if contentType is true. Header values may be any bytes.
//
// Returns ErrMalformed for a header value of another type, and for a content type, header name or
// property that is not UTF-8. Returns ErrTooLarge above maxHeaders.
func encodeExtra(m *broker.Message, contentType bool) (string, error) {
	var e extra
	if contentType {
		if !utf8.ValidString(m.ContentType) {
			return "", fmt.Errorf("%w: the content type is not UTF-8", broker.ErrMalformed)
		}
		e.ContentType = m.ContentType
	}
	for k, v := range m.Headers {
		if k == lanes.Header && lanes.Of(m) > 0 {
			continue // it has a header of its own
		}
		if !utf8.ValidString(k) {
			return "", fmt.Errorf("%w: the name of header %.40q is not UTF-8", broker.ErrMalformed, k)
		}
		val, ok := valueOf(v)
		if !ok {
			return "", fmt.Errorf("%w: header %.40q has the type %T, which cannot be sent", broker.ErrMalformed, k, v)
		}
		if e.Headers == nil {
			e.Headers = make(map[string]value, len(m.Headers))
		}
		e.Headers[k] = val
	}
	for k, v := range m.Properties {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return "", fmt.Errorf("%w: property %.40q is not UTF-8", broker.ErrMalformed, k)
		}
	}
	e.Properties, e.Key, e.Weight = m.Properties, m.Key, m.Weight
	text, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("%w: %w", broker.ErrMalformed, err)
	}
	if len(text) > maxHeaders {
		return "", fmt.Errorf("%w: headers of %d bytes, the limit is %d", broker.ErrTooLarge, len(text), maxHeaders)
	}
	return string(text), nil
}

// valueOf returns v, a header's value, in its stored form. It returns false for a type that a
// header cannot have. A nil []byte becomes an empty one.
func valueOf(v any) (value, bool) {
	switch v := v.(type) {
	case string:
		if utf8.ValidString(v) {
			return value{S: &v}, true
		}
		x := []byte(v)
		return value{X: &x}, true
	case []byte:
		if v == nil {
			v = []byte{}
		}
		return value{B: &v}, true
	case bool:
		return value{T: &v}, true
	case int64:
		return value{I: &v}, true
	case float64:
		return value{F: strconv.FormatFloat(v, 'g', -1, 64)}, true
	default:
		return value{}, false
	}
}

// goValue returns the Go value in v. It returns false if no field is set or F is not a number.
func (v value) goValue() (any, bool) {
	switch {
	case v.S != nil:
		return *v.S, true
	case v.X != nil:
		return string(*v.X), true
	case v.B != nil:
		return *v.B, true
	case v.T != nil:
		return *v.T, true
	case v.I != nil:
		return *v.I, true
	case v.F != "":
		f, err := strconv.ParseFloat(v.F, 64)
		return f, err == nil
	default:
		return nil, false
	}
}

// decode fills m with a stored message: id, body, and the headers that the package comment lists.
// The body is shared. Without a header Swj-Priority the priority is 100. Headers that belong
// neither to the adapter nor to the server come from a foreign program and are copied, each with
// its first value. Headers of the adapter that cannot be read are ignored.
func decode(m *broker.Message, id string, h nats.Header, body []byte) {
	m.ID, m.Body, m.Priority = id, body, defaultPriority
	for k, vs := range h {
		if len(vs) == 0 {
			continue
		}
		v := vs[0]
		switch k {
		case headerMsgID:
		case headerContentType:
			m.ContentType = v
		case headerGeneration:
			if n, err := strconv.Atoi(v); err == nil && n >= 0 && n <= math.MaxInt32 {
				m.Generation = n
			}
		case headerPriority:
			if n, err := strconv.ParseInt(v, 10, 32); err == nil {
				m.Priority = int(n)
			}
		case headerLane:
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				lanes.Set(m, n)
			}
		case headerExpires:
			m.Expires = parseMillis(v)
		case headerExtra:
			decodeExtra(m, v)
		default:
			if !hasPrefixFold(k, "nats-") && !hasPrefixFold(k, "swj-") {
				setHeader(m, k, v)
			}
		}
	}
}

// decodeExtra sets the content type, properties, headers, Key and Weight of m from text, the
// value of the header Swj-Extra. An empty content type and empty properties leave those of m
// unchanged. It skips headers whose value goValue cannot convert. It ignores a text that is not
// JSON.
func decodeExtra(m *broker.Message, text string) {
	var e extra
	if json.Unmarshal([]byte(text), &e) != nil {
		return // not written by this adapter
	}
	if e.ContentType != "" {
		m.ContentType = e.ContentType
	}
	for k, v := range e.Headers {
		if val, ok := v.goValue(); ok {
			setHeader(m, k, val)
		}
	}
	if len(e.Properties) > 0 {
		m.Properties = e.Properties
	}
	messagecode.SetKey(m, e.Key, int64(e.Weight))
}

// setHeader sets a header of m.
func setHeader(m *broker.Message, k string, v any) {
	if m.Headers == nil {
		m.Headers = make(map[string]any)
	}
	m.Headers[k] = v
}

// hasPrefixFold reports whether s begins with prefix, ignoring case.
func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// parseMillis returns the time in s, Unix milliseconds, or the zero time if s is not a number.
func parseMillis(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// formatMillis returns t in Unix milliseconds, rounded up, so that it is never read as an earlier
// time.
func formatMillis(t time.Time) string {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// headerValue returns the first value of the header k, "" if it does not exist. The case of k
// counts.
func headerValue(h nats.Header, k string) string {
	if vs := h[k]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// generationOf returns the generation in the headers of a stored message, 0 if they hold none or
// one that is not valid.
func generationOf(h nats.Header) int {
	n, err := strconv.Atoi(headerValue(h, headerGeneration))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
