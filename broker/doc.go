// Package broker defines the port through which tasks are distributed: the operations of a message
// broker that a producer and a consumer need. The core interfaces hold only operations that every
// supported broker has.
//
// An adapter implements [Broker], [Subscription] and [Delivery]. Further abilities are small
// optional interfaces, such as [Delayer]. The callers find them with capability.As, and use a
// function of this package, such as [PublishAt], where one is missing. The package brokertest holds
// a case for every sentence here about the behavior of an adapter.
//
// Rules for every adapter:
//   - It does not retry an operation and does not log an error that it returns. Errors wrap one of
//     this package's sentinels and the client's own error. They never hold a password.
//   - All methods may be called from any goroutine.
//   - A ctx bounds every wait. A call that need not wait may succeed although ctx is done.
//   - The adapter restores lost connections for as long as the Broker is open.
package broker
