package control

import "context"

// Exchange is one of Celery's exchanges for events and commands.
type Exchange int

// The exchanges, with their names in Celery's default configuration.
const (
	Events   Exchange = iota // celeryev: events, by their type
	Commands                 // celery.pidbox: commands, for all nodes
	Replies                  // reply.celery.pidbox: replies to commands, by the caller's id
)

// String returns the name of the exchange, and "" for an unknown one.
func (x Exchange) String() string {
	switch x {
	case Events:
		return "celeryev"
	case Commands:
		return "celery.pidbox"
	case Replies:
		return "reply.celery.pidbox"
	}
	return ""
}

// Message is one message on an exchange.
type Message struct {
	Exchange Exchange
	Key      string // routing key; "" on Commands
	// Headers hold nil, bool, int64, float64, string, and further types of the transport.
	Headers map[string]any
	// JSON reports whether the content type is application/json. It is true in sent messages.
	JSON bool
	Body []byte // belongs to the receiver
}

// Mailbox names the messages that a listener receives.
type Mailbox struct {
	Exchange Exchange
	// Keys are the routing keys on Events, which may have the wildcards of a topic exchange, and on
	// Replies. Empty for Commands.
	Keys []string
	// Node names the node whose commands these are. It is set for Commands only. Two listeners of one
	// node would each receive a part of the commands.
	Node string
}

// Transport carries the messages of the exchanges. All methods are safe for concurrent use. Errors
// wrap those of package events: ErrUnavailable, or ErrClosed after Close.
type Transport interface {
	// Publish sends m, and returns when the connection has taken it. It waits for a connection until
	// ctx ends. A message without a listener is lost.
	Publish(ctx context.Context, m *Message) error
	// Listen calls handle for each message that arrives from now on, one at a time. It returns when
	// the mailbox is open, and tries until ctx ends. A lost connection is restored, and messages of
	// that time may be lost.
	Listen(ctx context.Context, box Mailbox, handle func(m *Message)) (Listener, error)
	// About returns facts about the server for "celery inspect stats", under Celery's names, without a
	// password.
	About() map[string]any
	// Close ends all listeners and closes the connections. Further calls do nothing.
	Close(ctx context.Context) error
}

// Listener is an open mailbox of a [Transport].
type Listener interface {
	// Close ends the listener and waits until handle has returned, or ctx ends. Further calls do
	// nothing. Do not call it in handle.
	Close(ctx context.Context) error
}
