// Package redisconn is what all Redis adapters share: one client for a single server, Sentinel or a cluster, scripts that
// are executed at most once for each call, subscriptions that outlive lost connections, and errors with a class.
//
// The client library repeats commands by itself when a connection breaks, also when the server may have executed them. Here
// that is switched off, and replaced by a rule that a caller can rely on: a call is repeated for as long as its ctx allows
// when it was surely not executed (no connection, a server that loads its data, a replica that was a master a moment ago),
// and never when it may have been; then the error is [ErrIndeterminate]. To know the one from the other each network
// connection notes whether anything but the greeting has been written to it.
//
// A ctx that ends gives [ErrUnavailable] only if nothing was written on any connection since the call began; else
// [ErrIndeterminate], although it may have been the bytes of another call that were written.
//
// All methods may be called from any goroutine.
package redisconn
