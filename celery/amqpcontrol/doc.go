// Package amqpcontrol carries Celery's events and commands over RabbitMQ. It declares the exchanges
// and queues as Celery 5 does in its default configuration.
package amqpcontrol
