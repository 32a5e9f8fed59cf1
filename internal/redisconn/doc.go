// Package redisconn is the common base of all Redis adapters. It provides one client for a single
// server, Sentinel or a cluster; scripts that execute at most once for each call; subscriptions
// that survive lost connections; and errors with a class.
//
// The client library repeats commands by itself when a connection breaks, even if the server may
// have executed them. This package switches that off and follows one rule. A call is repeated until
// its ctx ends if it was certainly not executed: the connection could not be made, the server still
// loads its data, or it just became a replica. A call that may have been executed is never repeated
// and returns [ErrIndeterminate]. To tell the two cases apart, each network connection records
// whether a command has been written to it.
//
// A call whose ctx ends returns [ErrUnavailable] only if no command was written on any connection
// since the call began. Otherwise it returns [ErrIndeterminate], even if the written bytes belonged
// to another call.
//
// All methods are safe for concurrent use.
package redisconn
