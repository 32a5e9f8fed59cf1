// Package amqpdelay delays messages on RabbitMQ with queues whose messages expire. All brokers over
// RabbitMQ share it.
//
// A delayed message waits in one queue for each 1 in the binary form of its delay in milliseconds.
// Level n holds a message for 2^n ms and then dead-letters it to the exchange of its level. All
// messages of one level wait equally long, so none blocks another.
//
// The routing key names the levels, then "q" and the target queue: "06.09.12.q.mail". Each exchange
// looks for the word after its own and routes into the queue of that level, or to the end. A short
// key is cheap: the server compares topics word by word.
//
// The longest wait is the last one. So many messages that are due at once pass one level then, not
// all.
package amqpdelay
