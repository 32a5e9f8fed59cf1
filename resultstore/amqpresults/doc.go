// Package amqpresults sends results over RabbitMQ. Every submitter has a reply queue, and consumers
// publish the final record of a task to the queue of its submitter. No other store is needed.
// Nothing is stored: results end with the submitter's process.
//
// The reply queue of a node is swj.<namespace>.reply.<node>. It is durable, so that results survive
// a restart of the broker. It outlives its submitter's connection by [Config.Expires], so that
// results that arrive during a reconnect are not lost. Closing the stream removes the queue, unless
// another process with the same node id reads it.
//
// Consequences:
//   - Save sends terminal records, and open records with an error. For any other record it returns
//     nil and does nothing.
//   - Load always returns [resultstore.ErrNotFound], and Delete does nothing.
//     [resultstore.RepliesOnly] is true.
//   - Save does not know the earlier records of a task, so it never returns [resultstore.ErrStale].
//     Two records may arrive if a task ran twice or the broker's answer was lost. A submitter uses
//     the first one.
//   - Save returns [resultstore.ErrUnreachable] once the submitter's queue has been missing for 3
//     s.
//   - A submitter receives [resultstore.ErrLost] if its queue was deleted, has expired, or was lost
//     with its node. The stream then declares the queue again. After a lost connection this happens
//     as soon as a connection exists. Records dropped by MaxLength are not reported.
//   - Groups are not supported, because they need a store that keeps records (Config.Gatherer of
//     producer and consumers). Futures behind a group that such a store forgets end here as well.
//   - A record names the node of its submitter, never a queue. An invalid node name is
//     [resultstore.ErrMalformed]. A forged task can therefore send its result only to a reply queue
//     of the namespace.
//
// A classic queue lives on one node. While that node of a cluster is down its results can neither
// be sent nor read, and Save returns [resultstore.ErrUnavailable]. Reply queues are therefore
// quorum queues if several URLs are given; see [Config.QueueType].
package amqpresults
