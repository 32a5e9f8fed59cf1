package amqp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
	"github.com/swarmiji/swarmiji/internal/naming"
)

// The headers of the adapter. Python workers ignore them. A message without retries beyond those of
// Celery, with the default priority, no key, no weight and no expiry carries none of them.
const (
	headerGeneration = "swj-gen"     // int64, unless Celery's header retries has the number
	headerPriority   = "swj-prio"    // int64
	headerKey        = "swj-key"     // string
	headerWeight     = "swj-weight"  // int64
	headerExpires    = "swj-expires" // int64, Unix milliseconds
)

// Headers of Celery that name the message.
const (
	headerID      = "id"
	headerRetries = "retries"
)

const (
	defaultPriority = 100
	maxShort        = 255 // bytes of an AMQP short string
)

// isOurs reports whether a header belongs to the adapter, or is one that the server adds. If
// x-death were copied, the server would regard a delayed message as one in a cycle and drop it.
func isOurs(name string) bool {
	return strings.HasPrefix(name, "swj-") || name == "x-death" || name == "x-delivery-count" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// encode fills p with m. It refuses every message to which the client library or the server would
// answer by closing the channel or the connection. That would affect other messages too.
//
//   - ErrTooLarge: the body is larger than [broker.BodyLimit] of maxBody, or the headers are larger
//     than amqpconn.MaxHeaders.
//   - ErrMalformed: m is nil, its Generation is negative, or its ID or ContentType has more than
//     255 bytes. The same holds for its Key or Weight if they are not valid, and for a header or
//     property that AMQP cannot carry.
func encode(p *amqp.Publishing, m *broker.Message, maxBody int) error {
	switch {
	case m == nil:
		return fmt.Errorf("%w: no message", broker.ErrMalformed)
	case len(m.Body) > broker.BodyLimit(maxBody, m.Generation):
		return fmt.Errorf("%w: body of %d bytes, the limit is %d", broker.ErrTooLarge, len(m.Body), maxBody)
	case m.Generation < 0:
		return fmt.Errorf("%w: generation %d", broker.ErrMalformed, m.Generation)
	case len(m.ID) > maxShort || len(m.ContentType) > maxShort:
		return fmt.Errorf("%w: an id or content type is longer than %d bytes", broker.ErrMalformed, maxShort)
	}
	if err := broker.CheckFairness(m); err != nil {
		return err
	}
	start(p, m)
	size := 0
	for k, v := range m.Headers {
		if isOurs(k) {
			continue
		}
		field, bytes, ok := toField(v, 0)
		if !ok || len(k) > maxShort || amqpconn.Reroutes(k) {
			return fmt.Errorf("%w: header %.40q with a value of type %T cannot be sent", broker.ErrMalformed, k, v)
		}
		p.Headers[k] = field
		size += len(k) + 6 + bytes
	}
	if size > amqpconn.MaxHeaders {
		return fmt.Errorf("%w: headers of about %d bytes, the limit is %d", broker.ErrTooLarge, size, amqpconn.MaxHeaders)
	}
	encodeOwn(p, m)
	for k, v := range m.Properties {
		if err := amqpconn.SetProperty(p, k, v); err != nil {
			return err
		}
	}
	return nil
}

// encodeCopy fills p with m, a message that the server has delivered. It returns the names of the
// headers and properties that the copy does not keep: headers that would route it to further
// queues, the largest headers if all together are larger than 96 KiB, and properties that AMQP
// cannot carry.
//
// It never fails, because a message that could be neither released nor dead-lettered would be
// delivered for ever. A copy never expires on the server, see [amqpconn.HideExpiration].
func encodeCopy(p *amqp.Publishing, m *broker.Message) (dropped []string) {
	start(p, m)
	sizes := make(map[string]int, len(m.Headers))
	for k, v := range m.Headers {
		field, bytes, ok := toField(v, 0)
		if !ok || amqpconn.Reroutes(k) {
			dropped = append(dropped, k)
			continue
		}
		p.Headers[k], sizes[k] = field, len(k)+6+bytes
	}
	dropped = append(dropped, amqpconn.TrimHeaders(p.Headers, func(k string) int { return sizes[k] })...)
	encodeOwn(p, m)
	return append(dropped, amqpconn.CopyProperties(p, m.Properties)...)
}

// start fills p with the fields of m that are neither headers nor properties. The property
// message-id is only set if the header id does not hold the id.
func start(p *amqp.Publishing, m *broker.Message) {
	*p = amqp.Publishing{
		ContentType: m.ContentType, DeliveryMode: amqp.Persistent, Body: m.Body, Headers: make(amqp.Table, len(m.Headers)+2),
	}
	if id, ok := m.Headers[headerID].(string); !ok || id != m.ID {
		p.MessageId = m.ID
	}
}

// encodeOwn adds the adapter's headers to p.Headers, where the fields of m differ from the
// defaults.
func encodeOwn(p *amqp.Publishing, m *broker.Message) {
	if m.Generation != retries(p.Headers) {
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
}

// retries returns Celery's header retries, 0 if it is absent or not a count.
func retries(headers amqp.Table) int {
	if n, ok := amqpconn.Integer(headers[headerRetries]); ok && n >= 0 && n <= math.MaxInt32 {
		return int(n)
	}
	return 0
}

// decode fills m with the received message d; the body is shared. The id is Celery's header id, or
// the property message-id or correlation-id. Generation is the larger of the adapter's and Celery's
// count of retries: a Python worker raises only its own.
//
// All headers are copied except those of the adapter and of the server, and values that a
// broker.Message cannot hold.
func decode(m *broker.Message, d *amqp.Delivery) {
	m.ContentType, m.Body, m.Priority = d.ContentType, d.Body, defaultPriority
	if len(d.Headers) > 0 {
		m.Headers = make(map[string]any, len(d.Headers))
	}
	for k, v := range d.Headers {
		if !isOurs(k) {
			if v, ok := fromField(v, 0); ok {
				m.Headers[k] = v
			}
		}
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	m.ID, _ = m.Headers[headerID].(string)
	for _, id := range []string{d.MessageId, d.CorrelationId} {
		if m.ID == "" {
			m.ID = id
		}
	}
	decodeOwn(m, d.Headers)
	keep := func(name, value string) {
		if value != "" {
			if m.Properties == nil {
				m.Properties = make(map[string]string, 4)
			}
			m.Properties[name] = value
		}
	}
	keep("content-encoding", d.ContentEncoding)
	keep("correlation-id", d.CorrelationId)
	keep("reply-to", d.ReplyTo)
	keep("type", d.Type)
	keep("expiration", d.Expiration)
	if s, ok := d.Headers[amqpconn.ExpirationHeader].(string); ok {
		keep("expiration", s)
	}
	if d.Priority != 0 {
		keep("priority", strconv.Itoa(int(d.Priority)))
	}
}

// decodeOwn sets the fields of m that the adapter's headers hold. Invalid values are ignored.
func decodeOwn(m *broker.Message, headers amqp.Table) {
	m.Generation = retries(headers)
	if n, ok := amqpconn.Integer(headers[headerGeneration]); ok && n <= math.MaxInt32 {
		m.Generation = max(m.Generation, int(n))
	}
	if n, ok := amqpconn.Integer(headers[headerPriority]); ok && n >= math.MinInt32 && n <= math.MaxInt32 {
		m.Priority = int(n)
	}
	if s, ok := headers[headerKey].(string); ok && naming.ValidKey(s) {
		m.Key = s
	}
	if n, ok := amqpconn.Integer(headers[headerWeight]); ok && n > 0 && n <= naming.MaxWeight {
		m.Weight = int(n)
	}
	if n, ok := amqpconn.Integer(headers[headerExpires]); ok {
		m.Expires = time.UnixMilli(n)
	}
}
