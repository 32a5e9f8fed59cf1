package main

import (
	"context"
	"time"
)

// slowAfter is what counts as slow: a server that does one thing at a time is silent for all others meanwhile.
const slowAfter = 10 * time.Millisecond

// slowCommands makes a Redis server note slow commands from now on. The function it returns adds them to a report.
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
			_ = client.Close() // the other error says more
			return nil, err
		}
	}
	return func(d *Delayed) error {
		defer func() { _ = client.Close() }() // nothing is under way
		slow, err := client.SlowLogGet(ctx, -1).Result()
		d.Slow = len(slow)
		for _, s := range slow {
			if ms := milliseconds(s.Duration); ms > d.Slowest {
				d.Slowest, d.SlowName = ms, s.Args[0]+" "+s.Args[len(s.Args)-1] // the last says how many more there were
			}
		}
		return err
	}, nil
}
