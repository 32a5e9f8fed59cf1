package amqpconn

import (
	"fmt"
	"math"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/broker"
)

// maxShort limits an AMQP short string, in bytes.
const maxShort = 255

// SetProperty sets the native AMQP property k of p to v. Returns [broker.ErrMalformed] if k is
// unknown, or if v is longer than 255 bytes or not a valid number.
func SetProperty(p *amqp.Publishing, k, v string) error {
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
