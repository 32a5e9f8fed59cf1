// Package broker is the port through which tasks are distributed: what a producer and a consumer ask of a message broker,
// and nothing that only some of them can give.
//
// An adapter implements [Broker], [Subscription] and [Delivery]. What more it can do it offers as small interfaces, which
// the portable side finds with capability.As; each has one fallback, in emulate.go. The package brokertest holds a case for every
// sentence here that says what an adapter does.
//
// Rules for every adapter:
//   - It never retries and never logs what it returns. Errors wrap one of this package's sentinels and, beside it, the
//     client's own error; they never hold a password.
//   - All methods may be called from any goroutine.
//   - A ctx bounds every wait. A call that has nothing to wait for may succeed although ctx is done.
//   - Lost connections mend themselves, for as long as the Broker is open.
package broker
