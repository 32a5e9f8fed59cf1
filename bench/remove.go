package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// removeAll removes the queue from the server, and with it all that the run has left there. names are those of its queues on
// a server where nothing but names tells what belongs to it.
func removeAll(ctx context.Context, cfg *config, names ...string) error {
	switch cfg.technology() {
	case techAMQP:
		return removeQueues(cfg, names...)
	case techRedis, techHworker:
		return removeKeys(ctx, cfg)
	case techNATS:
		return removeStreams(ctx, cfg)
	}
	return nil // it ends with the process
}

// removeQueues deletes queues on the server, and with those of Swarmiji what belongs to them. One that does not exist is no
// error.
func removeQueues(cfg *config, names ...string) error {
	conn, err := amqp.Dial(cfg.Broker)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", cfg.address(), err)
	}
	ch, err := conn.Channel()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	for _, name := range names {
		for _, kind := range []string{".q.", ".dead.", ".levels."} {
			if _, err := ch.QueueDelete(strings.Replace(name, ".q.", kind, 1), false, false, false); err != nil {
				return fmt.Errorf("delete queue %s: %w", name, err) // the server has closed the channel or all of the connection
			}
		}
	}
	return conn.Close()
}
