package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// removeAll removes the queue and all other data of the run from the server. names holds the queue
// names, for servers on which only names identify the data of the run.
func removeAll(ctx context.Context, cfg *config, names ...string) error {
	switch cfg.technology() {
	case techAMQP:
		return removeQueues(cfg, names...)
	case techRedis, techHworker:
		return removeKeys(ctx, cfg)
	case techNATS:
		return removeStreams(ctx, cfg)
	case techPostgres, techSQLite:
		return emptyTable(ctx, cfg, "swarmiji_message")
	}
	return nil // it ends with the process
}

// removeQueues deletes queues on the server, and for Swarmiji's queues also the queues that belong
// to them. A missing queue is not an error.
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
				// the server has closed the channel or the whole connection
				return fmt.Errorf("delete queue %s: %w", name, err)
			}
		}
	}
	return conn.Close()
}
