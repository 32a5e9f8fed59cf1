package amqpbroker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
)

// The headers of our own. On the fast path (generation 0, priority 100, no expiry) a message has none.
const (
	headerGeneration = "swj-gen"      // int64
	headerPriority   = "swj-prio"     // int64
	headerExpires    = "swj-expires"  // int64, Unix milliseconds
	headerReason     = "swj-reason"   // of a dead letter
	headerQueue      = "swj-queue"    // it came from
	headerDied       = "swj-died-ms"  // int64, Unix milliseconds
	headerStack      = "swj-stack"    // of a dead letter
	headerAttempts   = "swj-attempts" // int64, of a dead letter
	headerExpiration = "swj-ttl"      // string, the property expiration of a message that must not expire where it is
)

const (
	defaultPriority = 100
	// maxHeaders is the most bytes of headers and properties. A table has to fit into one frame (128 KiB): a larger one
	// costs the connection, so there is ample room for what the server adds on the way.
	maxHeaders = 64 << 10
	maxShort   = 255 // bytes of an AMQP short string
)

// foreign reports whether a header belongs to whoever sent the message, and not to the server or to us. A copied x-death
// makes the server take a delayed message for one that goes round in circles, and drop it.
func foreign(name string) bool {
	return !strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "swj-")
}

// encode fills p with m. Everything that the client library or the server would answer by closing the channel or the
// connection, which would hit other messages, is refused here.
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
	if m.Generation != 0 || idTime(m.ID) == 0 { // the client library allocates for it
		p.Timestamp = time.Now()
	}
	if len(m.ID) > maxShort || len(m.ContentType) > maxShort {
		return fmt.Errorf("%w: an id or content type is longer than %d bytes", broker.ErrMalformed, maxShort)
	}
	if m.Generation != 0 || m.Priority != defaultPriority || !m.Expires.IsZero() || len(m.Headers) > 0 {
		if err := encodeHeaders(p, m); err != nil {
			return err
		}
	}
	if len(m.Properties) > 0 {
		return encodeProperties(p, m.Properties)
	}
	return nil
}

func encodeHeaders(p *amqp.Publishing, m *broker.Message) error {
	p.Headers = make(amqp.Table, len(m.Headers)+3)
	size := 0
	for k, v := range m.Headers {
		if !foreign(k) {
			continue
		}
		if len(k) > maxShort || reroutes(k) {
			return fmt.Errorf("%w: a header cannot be named %.40q", broker.ErrMalformed, k)
		}
		switch v.(type) {
		case string, []byte, bool, int64, float64:
		default:
			return fmt.Errorf("%w: header %.40q is a %T", broker.ErrMalformed, k, v)
		}
		p.Headers[k] = v
		size += fieldSize(k, v)
	}
	if size > maxHeaders {
		return fmt.Errorf("%w: headers of about %d bytes, the limit is %d", broker.ErrTooLarge, size, maxHeaders)
	}
	encodeOwn(p, m)
	return nil
}

// encodeOwn sets the headers of our own.
func encodeOwn(p *amqp.Publishing, m *broker.Message) {
	if m.Generation != 0 {
		p.Headers[headerGeneration] = int64(m.Generation)
	}
	if m.Priority != defaultPriority {
		p.Headers[headerPriority] = int64(m.Priority)
	}
	if !m.Expires.IsZero() {
		p.Headers[headerExpires] = m.Expires.UnixMilli()
	}
}

// reroutes reports whether the server reads a header as a list of more queues.
func reroutes(name string) bool { return name == "CC" || name == "BCC" }

// fieldSize is how many bytes a header takes in a frame.
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

func encodeProperties(p *amqp.Publishing, props map[string]string) error {
	for k, v := range props {
		if err := encodeProperty(p, k, v); err != nil {
			return err
		}
	}
	return nil
}

func encodeProperty(p *amqp.Publishing, k, v string) error {
	if len(v) > maxShort {
		return fmt.Errorf("%w: property %.40q is longer than %d bytes", broker.ErrMalformed, k, maxShort)
	}
	switch k {
	case "content-encoding":
		p.ContentEncoding = v
	case "correlation-id":
		p.CorrelationId = v
	case "reply-to":
		p.ReplyTo = v
	case "type":
		p.Type = v
	case "priority":
		n, err := strconv.ParseUint(v, 10, 8)
		if err != nil {
			return fmt.Errorf("%w: property priority %.40q is not 0 to 255", broker.ErrMalformed, v)
		}
		p.Priority = uint8(n)
	case "expiration":
		if n, err := strconv.ParseUint(v, 10, 32); err != nil || n > math.MaxInt32 {
			return fmt.Errorf("%w: property expiration %.40q is not a number of milliseconds", broker.ErrMalformed, v)
		}
		p.Expiration = v
	default:
		return fmt.Errorf("%w: unknown property %.40q", broker.ErrMalformed, k)
	}
	return nil
}

// decode fills m with d.
func decode(m *broker.Message, d *amqp.Delivery) {
	m.ID, m.ContentType, m.Body, m.Priority = d.MessageId, d.ContentType, d.Body, defaultPriority
	for k, v := range d.Headers {
		switch {
		case k == headerGeneration:
			if n, ok := integer(v); ok && n >= 0 && n <= math.MaxInt32 {
				m.Generation = int(n)
			}
		case k == headerPriority:
			if n, ok := integer(v); ok && n >= math.MinInt32 && n <= math.MaxInt32 {
				m.Priority = int(n)
			}
		case k == headerExpires:
			if n, ok := integer(v); ok {
				m.Expires = time.UnixMilli(n)
			}
		case k == headerExpiration:
			if s, ok := v.(string); ok {
				property(m, "expiration", s)
			}
		case foreign(k):
			if v, ok := scalar(v); ok {
				if m.Headers == nil {
					m.Headers = make(map[string]any, len(d.Headers))
				}
				m.Headers[k] = v
			}
		}
	}
	property(m, "content-encoding", d.ContentEncoding)
	property(m, "correlation-id", d.CorrelationId)
	property(m, "reply-to", d.ReplyTo)
	property(m, "type", d.Type)
	property(m, "expiration", d.Expiration)
	if d.Priority != 0 {
		property(m, "priority", strconv.Itoa(int(d.Priority)))
	}
}

// publishedAt returns the earliest time at which somebody may have received d, in seconds since 1970: when it was published, or,
// of a delayed message, when its time had come. 0: unknown.
func publishedAt(d *amqp.Delivery) int64 {
	if !d.Timestamp.IsZero() {
		return max(d.Timestamp.Unix(), 0)
	}
	return idTime(d.MessageId)
}

// idTime returns the seconds since 1970 of an id that is a UUID of version 7, such as the producer makes; 0 for others.
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

func property(m *broker.Message, name, value string) {
	if value == "" {
		return
	}
	if m.Properties == nil {
		m.Properties = make(map[string]string, 4)
	}
	m.Properties[name] = value
}

// integer returns any of the integers of an AMQP table.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case byte:
		return int64(v), true
	case int:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	}
	return 0, false
}

// scalar returns v as one of the types that a header of a broker.Message may have. Tables, lists, decimals and times are
// none; they are left out.
func scalar(v any) (any, bool) {
	switch v := v.(type) {
	case string, []byte, bool, float64:
		return v, true
	case float32:
		return float64(v), true
	}
	n, ok := integer(v)
	return n, ok
}
