// Package amqpresults sends results back over RabbitMQ: every submitter has a reply queue, and consumers publish the
// final record of a task into the queue of who submitted it. No other store is needed, and nothing is kept: results die
// with the submitter's process.
//
// The reply queue of a node is swj.<namespace>.reply.<node>. It is durable, so that results survive a restart of the
// broker, and it outlives its submitter's connection by [Config.Expires]: what arrives while a submitter reconnects is
// not lost. When its stream is closed the queue is removed, unless another process of the same node id reads it.
//
// What follows from this way of working:
//   - Only terminal records are sent, and open ones with an error. Save of any other is nil and does nothing.
//   - Load finds nothing, ever ([resultstore.ErrNotFound]); Delete does nothing. [resultstore.RepliesOnly] is true of it.
//   - Save cannot tell what another consumer saved before, so it never returns [resultstore.ErrStale]. When a task ran
//     twice, or an answer of the broker got lost, two records may arrive; a submitter takes the first.
//   - Save of a record whose submitter's queue is gone is [resultstore.ErrUnreachable], once the queue has been missing for 3 s.
//   - A submitter whose queue was deleted, has expired or went down with its node's data is told [resultstore.ErrLost], and the queue is declared anew.
//     The same after a time without a connection, as soon as there is one. Nothing is told of records that MaxLength dropped.
//   - It gathers no groups: that takes a store that keeps something (Config.Gatherer of producer and consumers). The
//     futures behind a group which that store forgets end here as well.
//   - A record names its submitter's node, never a queue: a name that is none is [resultstore.ErrMalformed], so that a
//     forged task cannot have its result put into any queue but a reply queue of the namespace.
//
// A classic queue lives on one node. While that node of a cluster is down its results can neither be sent nor read, and
// Save is [resultstore.ErrUnavailable]. Hence reply queues are quorum queues where several URLs are given; see
// [Config.QueueType].
package amqpresults
