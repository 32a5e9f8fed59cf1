// Package amqp carries tasks over the queues that Celery's workers use on RabbitMQ.
//
// The Broker is for package celery, whose Open returns it together with Celery's message format. It
// knows nothing of the content of a message.
//
//   - A queue keeps Celery's name. An existing queue is used as it is. A missing one is declared as
//     Celery does: durable, without arguments, bound to a durable direct exchange of its name.
//   - Messages are published to the default exchange, persistent, confirmed and mandatory. All
//     headers are passed on.
//   - Delayed messages wait in queues whose names begin with "swj.celery.". All processes of a
//     virtual host share these. When the messages are due they go to Celery's queue.
//   - Dead letters go to the queue QUEUE.dead. The work queue has no dead-letter exchange.
//   - Priorities are Celery's, on queues with x-max-priority. Fairness is not supported. Declare
//     refuses it with [broker.ErrUnsupported].
//
// Celery's queues are classic queues. They tell only whether a delivery is the first. RabbitMQ
// stores their persistent messages on one node, so that the loss of its disk loses them.
package amqp
