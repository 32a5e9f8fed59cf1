package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultPing is the default of ListenerConfig.Ping.
const DefaultPing = 5 * time.Second

// ListenerConfig holds the callbacks of a [Listener]. They are called one at a time from one
// goroutine and must not block. While they run, messages accumulate in the server, which finally
// closes the connection.
type ListenerConfig struct {
	// Patterns makes the channels of Add glob-style patterns, also in the other methods. Message gets
	// the channel of the message, and Subscribed the pattern.
	Patterns bool
	// Message is called for each message. Nil: messages are dropped.
	Message func(channel, payload string)
	// Subscribed is called each time the server has confirmed a channel: the first time, and again
	// after a lost connection. Messages published in between are lost, so the owner should read its
	// source of truth once. Nil: no call.
	Subscribed func(channel string)
	// Lost is called when a connection with a confirmed channel has ended, with the error of the
	// client or the network. It is not called for a closed listener. Nil: no call.
	Lost func(err error)
	// Ping is the idle time after which the server is pinged. If no answer arrives within the same
	// time, the connection is closed. Refused channels are requested again at the same interval. 0: 5
	// s.
	Ping time.Duration
}

// how returns the method that subscribes to the name of a channel, or to a pattern.
func (c *ListenerConfig) how() func(*redis.PubSub, context.Context, ...string) error {
	if c.Patterns {
		return (*redis.PubSub).PSubscribe
	}
	return (*redis.PubSub).Subscribe
}

// howNot returns the method that ends the subscription to the name of a channel, or to a pattern.
func (c *ListenerConfig) howNot() func(*redis.PubSub, context.Context, ...string) error {
	if c.Patterns {
		return (*redis.PubSub).PUnsubscribe
	}
	return (*redis.PubSub).Unsubscribe
}
