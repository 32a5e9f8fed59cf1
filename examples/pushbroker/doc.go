// Package pushbroker has two small brokers without a queue, over which producers and consumers run
// unchanged. It is an example for authors of adapters. Programs use broker/membroker.
//
// # Two ways to distribute
//
// [AtOnce] runs a task inside Publish. A worker that waits in Receive gets the message, and Publish
// returns when the worker has settled it: a confirmed task is a finished one. Publish returns
// [broker.ErrNoQueue] if no consumer listens. AtOnce suits tests and command-line tools.
//
// [Push] chooses a node at Publish: the listening node that holds the fewest messages. The message
// waits in the inbox of that node. No other node can take it, unless its node leaves.
//
// # How they are made
//
// Both are a [Hub], which replaces the server of other adapters, and nodes connected to it. They
// differ in two places: when a node has room for a message (subscription.room), and whether Publish
// waits (Node.PublishAt).
//
// The port pulls: a consumer's workers call Receive. A broker that pushes keeps the waiting calls
// and answers the one that it chooses. The rest is the bookkeeping of each adapter: the holder of a
// message, the first settlement, and messages to return.
//
// # Lessons for authors
//
// A Publish that waits for a worker can wait for itself. The only worker may be running the handler
// that calls Submit. The settlement of a task may publish its successor while it holds the last
// place of its prefetch. So Publish waits only for running handlers. If no worker is free, the hub
// keeps the message, confirms it at once, and delivers it to the next free worker. For the same
// reason a retry ([broker.Retrier]) replaces its delivery in one step. With a Publish of the retry
// and then an Ack, the Publish could wait for the Ack.
//
// A confirmed message must not be lost. When a node leaves, its messages return to the front of the
// hub.
//
// Nothing survives the process. Messages are not copied: publisher and handler share their bytes,
// which neither may change.
package pushbroker
