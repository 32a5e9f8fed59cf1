// Package intake brings the messages of queues to the workers of a consumer.
//
//   - [Queue] is the subscription to one queue: it fetches, pauses, follows the workers or their
//     work with its prefetch, and gives back what has not started.
//   - [Workers] are the goroutines that take messages of one queue, or of several queues in strict
//     order, and handle them one by one.
//
// The package does not know tasks: it passes deliveries to [Tasks].
package intake
