package amqpconn

import (
	"cmp"
	"maps"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// MaxHeaders limits the headers of a message that a program publishes, in bytes. All headers must
// fit into one frame (128 KiB), with a margin for the headers that the server adds. A larger frame
// closes the connection.
const MaxHeaders = 64 << 10

// maxCopied limits the headers of a copy of a received message, in bytes. The frame also holds the
// reason of a dead letter (4 KiB). The server adds about 500 bytes at each of up to 38 delay
// levels. A consumer that receives a larger frame loses its connection.
const maxCopied = 96 << 10

// ExpirationHeader holds the property expiration of a message that must not expire on the server.
const ExpirationHeader = "swj-ttl"

// Reroutes reports whether the server reads the header as a list of further target queues.
func Reroutes(name string) bool { return name == "CC" || name == "BCC" }

// TrimHeaders deletes the largest headers in h until all together have at most 96 KiB, and returns
// their names. size returns the bytes of a header with its name.
func TrimHeaders(h amqp.Table, size func(name string) int) (dropped []string) {
	total := 0
	for k := range h {
		total += size(k)
	}
	if total <= maxCopied {
		return nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(h), func(a, b string) int { return cmp.Compare(size(b), size(a)) }) {
		if total <= maxCopied {
			break
		}
		total -= size(k)
		delete(h, k)
		dropped = append(dropped, k)
	}
	return dropped
}

// CopyProperties sets the native properties of p, a copy of a received message, and hides the
// expiration. It returns the names of those that AMQP cannot carry.
func CopyProperties(p *amqp.Publishing, properties map[string]string) (dropped []string) {
	for k, v := range properties {
		if k == "expiration" {
			p.Expiration = v
		} else if err := SetProperty(p, k, v); err != nil {
			dropped = append(dropped, k)
		}
	}
	HideExpiration(p)
	return dropped
}

// HideExpiration moves the property expiration of p into the header [ExpirationHeader]. It does
// nothing if the property is empty. A foreign format may have set the property.
//
// The server must not see it. In a delay level it would apply the shorter of the message's and the
// queue's time to live, and the message would be delivered early. Dead letters must not expire by
// it either.
func HideExpiration(p *amqp.Publishing) {
	if p.Expiration == "" {
		return
	}
	if p.Headers == nil {
		p.Headers = make(amqp.Table, 1)
	}
	p.Headers[ExpirationHeader] = p.Expiration
	p.Expiration = ""
}
