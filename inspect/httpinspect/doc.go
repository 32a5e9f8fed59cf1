// Package httpinspect carries an inspect.API over HTTP. [NewHandler] serves an implementation, and
// [NewClient] returns a second implementation, which asks such a server.
//
// # The protocol
//
// Each method of the interface is a path with the name of the method. A request is a POST with the
// method's argument as JSON, or without a body for the zero value. The answer is the method's
// result as JSON. All methods are POSTs, so that http.CrossOriginProtection refuses requests of
// other web sites, also those that only read.
//
//	curl -d '{"limit": 10}' http://localhost:8080/api/v1/ListQueues
//	curl -d '"orders"' http://localhost:8080/api/v1/ResumeQueue
//
// An error is an [inspect.Error] as JSON, with a status that fits its code. Integers beyond 2^53
// stay exact. Unknown fields of an argument are an error, since a misspelt filter would select too
// much.
package httpinspect
