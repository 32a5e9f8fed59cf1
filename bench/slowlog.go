package main

import (
	"context"
	"time"
)

// slowAfter is the minimum duration of a slow command. A server that runs one command at a time
// blocks all clients meanwhile.
const slowAfter = 10 * time.Millisecond

// slowCommands makes a Redis server record slow commands from now on. The returned function adds
// them to a report. With other technologies both do nothing.
func slowCommands(ctx context.Context, cfg *config) (func(d *Delayed) error, error) {
	if cfg.technology() != techRedis {
		return func(*Delayed) error { return nil }, nil
	}
	client, err := redisClient(cfg)
	if err != nil {
		return nil, err
	}
	for _, command := range [][]any{
		{"CONFIG", "SET", "slowlog-log-slower-than", slowAfter.Microseconds(), "slowlog-max-len", 10_000},
		{"SLOWLOG", "RESET"},
	} {
		if err := client.Do(ctx, command...).Err(); err != nil {
			_ = client.Close() // the other error is more useful
			return nil, err
		}
	}
	return func(d *Delayed) error {
		defer func() { _ = client.Close() }() // no command is in progress
		slow, err := client.SlowLogGet(ctx, -1).Result()
		d.Slow = len(slow)
		for _, s := range slow {
			if ms := milliseconds(s.Duration); ms > d.Slowest {
				// the last argument may hold the number of omitted ones
				d.Slowest, d.SlowName = ms, s.Args[0]+" "+s.Args[len(s.Args)-1]
			}
		}
		return err
	}, nil
}
