package amqpbroker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

// The headers of the adapter, besides lanes.Header and those of dead letters in package amqpdead.
// A message with generation 0, priority 100, no key, no weight, lane 0 and no expiry carries no
// such header.
const (
	headerGeneration = "swj-gen"     // int64
	headerPriority   = "swj-prio"    // int64
	headerKey        = "swj-key"     // string
	headerWeight     = "swj-weight"  // int64
	headerExpires    = "swj-expires" // int64, Unix milliseconds
)

const (
	defaultPriority = 100
	maxShort        = 255 // bytes of an AMQP short string
)

// isForeign reports whether a header belongs to the publisher, not to the server ("x-") or to the
// adapter ("swj-"). If x-death were copied, the server would regard a delayed message as one in a
// cycle and drop it.
func isForeign(name string) bool {
	return !strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "swj-")
}

// encode fills p with m. It refuses every message to which the client library or the server would
// answer by closing the channel or the connection. That would affect other messages too. After an
// error p may be filled in part. p.Timestamp is now, or zero if the id holds the time (see idTime)
// and Generation is 0.
//
//   - ErrTooLarge: the body is larger than [broker.BodyLimit], or the headers are larger than
//     amqpconn.MaxHeaders.
//   - ErrMalformed: m is nil, its Generation is negative, or its ID or ContentType has more than
//     255 bytes. The same holds for its Key or Weight if they are not valid, and for a header or
//     property that AMQP cannot carry.
func (b *Broker) encode(p *amqp.Publishing, m *broker.Message) error {
	if m == nil {
		return fmt.Errorf("%w: no message", broker.ErrMalformed)
	}
	if len(m.Body) > broker.BodyLimit(b.cfg.MaxBody, m.Generation) {
		return fmt.Errorf("%w: body of %d bytes, the limit is %d", broker.ErrTooLarge, len(m.Body), b.cfg.MaxBody)
	}
	if m.Generation < 0 {
		return fmt.Errorf("%w: generation %d", broker.ErrMalformed, m.Generation)
	}
	*p = amqp.Publishing{ContentType: m.ContentType, MessageId: m.ID, DeliveryMode: amqp.Persistent, Body: m.Body}
	if m.Generation != 0 || idTime(m.ID) == 0 { // the client library allocates memory for a timestamp
		p.Timestamp = time.Now()
	}
	if err := broker.CheckFairness(m); err != nil {
		return err
	}
	if len(m.ID) > maxShort || len(m.ContentType) > maxShort {
		return fmt.Errorf("%w: an id or content type is longer than %d bytes", broker.ErrMalformed, maxShort)
	}
	if m.Generation != 0 || m.Priority != defaultPriority || m.Key != "" || m.Weight != 0 || !m.Expires.IsZero() || len(m.Headers) > 0 {
		if err := encodeHeaders(p, m); err != nil {
			return err
		}
	}
	if len(m.Properties) > 0 {
		return encodeProperties(p, m.Properties)
	}
	return nil
}

// encodeHeaders sets p.Headers to the foreign headers of m and those of the adapter. Headers of m
// that begin with "x-" or "swj-" are left out. Returns ErrMalformed for a name or type that cannot
// be sent, ErrTooLarge above amqpconn.MaxHeaders.
func encodeHeaders(p *amqp.Publishing, m *broker.Message) error {
	p.Headers = make(amqp.Table, len(m.Headers)+3)
	size := 0
	for k, v := range m.Headers {
		if !isForeign(k) {
			continue
		}
		if len(k) > maxShort || amqpconn.Reroutes(k) {
			return fmt.Errorf("%w: a header cannot be named %.40q", broker.ErrMalformed, k)
		}
		switch v.(type) {
		case string, []byte, bool, int64, float64:
		default:
			return fmt.Errorf("%w: header %.40q has the type %T, which cannot be sent", broker.ErrMalformed, k, v)
		}
		p.Headers[k] = v
		size += fieldSize(k, v)
	}
	if size > amqpconn.MaxHeaders {
		return fmt.Errorf("%w: headers of about %d bytes, the limit is %d", broker.ErrTooLarge, size, amqpconn.MaxHeaders)
	}
	encodeOwn(p, m)
	return nil
}

// encodeOwn adds the adapter's headers for generation, priority, key, weight, lane and expiry to
// p.Headers, where they differ from the defaults. p.Headers must not be nil.
func encodeOwn(p *amqp.Publishing, m *broker.Message) {
	if m.Generation != 0 {
		p.Headers[headerGeneration] = int64(m.Generation)
	}
	if m.Priority != defaultPriority {
		p.Headers[headerPriority] = int64(m.Priority)
	}
	if m.Key != "" {
		p.Headers[headerKey] = m.Key
	}
	if m.Weight != 0 {
		p.Headers[headerWeight] = int64(m.Weight)
	}
	if !m.Expires.IsZero() {
		p.Headers[headerExpires] = m.Expires.UnixMilli()
	}
	setLane(p, lanes.Of(m))
}

// setLane sets the header for the lane in p. It does nothing for lane 0.
func setLane(p *amqp.Publishing, lane int) {
	if lane == 0 {
		return
	}
	if p.Headers == nil {
		p.Headers = make(amqp.Table, 1)
	}
	p.Headers[lanes.Header] = int64(lane)
}

// fieldSize returns about how many bytes a header takes in a frame.
func fieldSize(name string, v any) int {
	switch v := v.(type) {
	case string:
		return len(name) + 6 + len(v)
	case []byte:
		return len(name) + 6 + len(v)
	default:
		return len(name) + 10
	}
}

// encodeProperties sets the native AMQP properties of p. Returns ErrMalformed for an unknown name
// or a value that AMQP cannot carry.
func encodeProperties(p *amqp.Publishing, props map[string]string) error {
	for k, v := range props {
		if err := amqpconn.SetProperty(p, k, v); err != nil {
			return err
		}
	}
	return nil
}

// decode fills m with the received message d; the body is shared. Headers of the adapter set fields
// of m, and are ignored if their value is invalid. Without a header swj-prio the priority is 100.
// Foreign headers and native properties are copied, except values of types that a broker.Message
// cannot hold.
func decode(m *broker.Message, d *amqp.Delivery) {
	m.ID, m.ContentType, m.Body, m.Priority = d.MessageId, d.ContentType, d.Body, defaultPriority
	for k, v := range d.Headers {
		switch {
		case k == headerGeneration:
			if n, ok := amqpconn.Integer(v); ok && n >= 0 && n <= math.MaxInt32 {
				m.Generation = int(n)
			}
		case k == headerPriority:
			if n, ok := amqpconn.Integer(v); ok && n >= math.MinInt32 && n <= math.MaxInt32 {
				m.Priority = int(n)
			}
		case k == headerKey:
			if s, ok := v.(string); ok {
				messagecode.SetKey(m, s, 0)
			}
		case k == headerWeight:
			if n, ok := amqpconn.Integer(v); ok {
				messagecode.SetKey(m, m.Key, n)
			}
		case k == lanes.Header:
			if n, ok := amqpconn.Integer(v); ok {
				lanes.Set(m, n)
			}
		case k == headerExpires:
			if n, ok := amqpconn.Integer(v); ok {
				m.Expires = time.UnixMilli(n)
			}
		case k == amqpconn.ExpirationHeader:
			if s, ok := v.(string); ok {
				setProperty(m, "expiration", s)
			}
		case isForeign(k):
			if v, ok := scalar(v); ok {
				if m.Headers == nil {
					m.Headers = make(map[string]any, len(d.Headers))
				}
				m.Headers[k] = v
			}
		}
	}
	setProperty(m, "content-encoding", d.ContentEncoding)
	setProperty(m, "correlation-id", d.CorrelationId)
	setProperty(m, "reply-to", d.ReplyTo)
	setProperty(m, "type", d.Type)
	setProperty(m, "expiration", d.Expiration)
	if d.Priority != 0 {
		setProperty(m, "priority", strconv.Itoa(int(d.Priority)))
	}
}

// publishedAt returns the earliest time at which a consumer may have received d, in seconds since
// 1970. That is the time of publishing, or for a delayed message the time when it was due. 0:
// unknown.
func publishedAt(d *amqp.Delivery) int64 {
	if !d.Timestamp.IsZero() {
		return max(d.Timestamp.Unix(), 0)
	}
	return idTime(d.MessageId)
}

// idTime returns the time in an id that is a UUID of version 7, in seconds since 1970. The producer
// makes such ids. It returns 0 for any other id.
func idTime(id string) int64 {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[14] != '7' || id[18] != '-' || id[23] != '-' {
		return 0
	}
	ms := int64(0)
	for i := range 13 {
		c := id[i]
		switch {
		case i == 8:
			continue
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return 0
		}
		ms = ms<<4 | int64(c)
	}
	return ms / 1000
}

// setProperty sets a property of m, unless value is empty.
func setProperty(m *broker.Message, name, value string) {
	if value == "" {
		return
	}
	if m.Properties == nil {
		m.Properties = make(map[string]string, 4)
	}
	m.Properties[name] = value
}

// scalar returns v as one of the types that a header of a broker.Message may have: string, []byte,
// bool, int64 or float64. It returns false for tables, lists, decimals and times.
func scalar(v any) (any, bool) {
	switch v := v.(type) {
	case string, []byte, bool, float64:
		return v, true
	case float32:
		return float64(v), true
	}
	n, ok := amqpconn.Integer(v)
	return n, ok
}
