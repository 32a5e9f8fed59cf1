// Package pushbroker shows that a broker need not be a queue: two brokers of a few lines each, over which producers and
// consumers run unchanged. It is a place to start for authors of adapters; for use in programs there is broker/membroker.
//
// # Two ways to distribute
//
// [AtOnce] runs a task inside Publish. The message is handed to a worker that waits in Receive, and Publish returns when
// that worker has settled it: a confirmed task is a finished one. Nobody listening is [broker.ErrNoQueue]: there is nothing
// to wait in. It suits tests, command-line tools, and programs that may one day move their tasks elsewhere.
//
// [Push] decides at Publish which node gets the message: the listening one that holds the least. The message waits there,
// in that node's inbox, and no other node can take it any more, unless its node leaves.
//
// # How they are made
//
// Both are a [Hub], which stands where other adapters have a server, and nodes connected to it. What differs is two lines:
// when a node has room for a message (subscription.room), and whether Publish waits (Node.PublishAt).
//
// The port is a pull: a consumer's workers call Receive. A broker that pushes keeps the calls that wait, and answers the
// one it chooses. All else is bookkeeping that every adapter has: who holds what, who settled first, what goes back.
//
// # What an author should take from it
//
// A Publish that waits for a worker can wait for itself. The only worker may be running the handler that calls Submit; or
// the settlement of a task publishes its successor while it holds the last place of its prefetch. So Publish waits only
// for what runs already. A message for which no worker is free is kept by the hub, which confirms it at once and hands it
// to the next one. For the same reason a retry ([broker.Retrier]) takes the place of its delivery in one step: Publish of
// the retry, then Ack of the old, would let the first Publish wait for the second.
//
// A confirmed message must not be lost. Whatever a node held when it left goes back to the hub, first in line.
//
// Nothing survives the process, and nothing is copied: publisher and handler share the message's bytes, which nobody may
// change.
package pushbroker
