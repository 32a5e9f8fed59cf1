// Package line reads the due jobs of a queue in order, and computes whether the limit of the queue
// admits them. Leaders of queues and Service.Explain use it.
package line
