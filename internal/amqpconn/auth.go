package amqpconn

import amqp "github.com/rabbitmq/amqp091-go"

// auth answers the server's challenge. While it does, it adds a capability to the properties that the client library is
// about to send and would otherwise leave out: with it the server says that it refused the credentials; without it the
// server just hangs up, which cannot be told from a network that failed at that moment.
type auth struct {
	amqp.Authentication
	properties amqp.Table
}

// Response returns the inner mechanism's response.
func (a auth) Response() string {
	if caps, ok := a.properties["capabilities"].(amqp.Table); ok {
		caps["authentication_failure_close"] = true
	}
	return a.Authentication.Response()
}

func (ep endpoint) sasl(properties amqp.Table) []amqp.Authentication {
	var inner amqp.Authentication = &amqp.PlainAuth{Username: ep.user, Password: ep.pass}
	if ep.external {
		inner = &amqp.ExternalAuth{}
	}
	return []amqp.Authentication{auth{inner, properties}}
}
