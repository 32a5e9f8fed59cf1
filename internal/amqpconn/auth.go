package amqpconn

import amqp "github.com/rabbitmq/amqp091-go"

// auth answers the server's authentication challenge. It also adds a capability to the client
// properties that the library would omit. With the capability the server reports refused
// credentials. Without it the server only closes the connection, which looks like a network
// failure.
type auth struct {
	amqp.Authentication
	properties amqp.Table
}

// Response adds the capability to the client properties and returns the response of the inner
// mechanism.
func (a auth) Response() string {
	if caps, ok := a.properties["capabilities"].(amqp.Table); ok {
		caps["authentication_failure_close"] = true
	}
	return a.Authentication.Response()
}

// sasl returns the one SASL mechanism of the endpoint: EXTERNAL if the URL asks for it, otherwise
// PLAIN with user and password. Its Response changes properties, the client properties of the
// connection.
func (ep endpoint) sasl(properties amqp.Table) []amqp.Authentication {
	var inner amqp.Authentication = &amqp.PlainAuth{Username: ep.user, Password: ep.pass}
	if ep.external {
		inner = &amqp.ExternalAuth{}
	}
	return []amqp.Authentication{auth{inner, properties}}
}
