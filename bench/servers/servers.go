// Package servers starts the private servers of the benchmarks.
package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// Start starts a private server and returns its URL: rabbit, redis, nats, hworker, postgres, sqlite
// or memory. Redis syncs its append-only file every second. The others write each commit to disk.
// stop ends the server and removes its data.
func Start(ctx context.Context, name string) (url string, stop func() error, err error) {
	switch name {
	case "rabbit":
		return started(testserver.StartRabbit(ctx, testserver.RabbitConfig{}))
	case "redis":
		return started(testserver.StartRedis(ctx, testserver.RedisConfig{AOF: "everysec"}))
	case "hworker":
		url, stop, err = Start(ctx, "redis")
		return "hworker+" + url, stop, err
	case "nats":
		return started(testserver.StartNATS(ctx, testserver.NATSConfig{}))
	case "postgres":
		return started(testserver.StartPostgres(ctx, testserver.PostgresConfig{}))
	case "sqlite":
		dir, err := os.MkdirTemp("", "swarmiji-bench-")
		if err != nil {
			return "", nil, err
		}
		return "sqlite://" + filepath.Join(dir, "bench.db"), func() error { return os.RemoveAll(dir) }, nil
	case "memory":
		return "mem://", func() error { return nil }, nil
	}
	return "", nil, fmt.Errorf("unknown server %q; known are rabbit, redis, nats, hworker, postgres, sqlite, memory", name)
}

// server is a private server.
type server interface {
	URL() string
	Close() error
}

func started[S server](s S, err error) (string, func() error, error) {
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}
