package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// engine is a broker with a table.
type engine struct {
	name  string
	title string
	rows  []row
	// start starts a private server.
	start func(ctx context.Context) (url string, stop func() error, err error)
}

func engines() []engine {
	return []engine{
		{"rabbit", "RabbitMQ, quorum queues, persistent messages", rabbitRows(), startRabbit},
		{"redis", "Redis, append-only file synced every second", redisRows(), startRedis},
		{"nats", "NATS JetStream, file storage", natsRows(), startNATS},
		{"hworker", "hworker's four keys in Redis, append-only file synced every second", hworkerRows(), startHworker},
		{"postgres", "PostgreSQL, each commit on disk", postgresRows(), startPostgres},
		{"sqlite", "SQLite, each commit on disk", sqliteRows(), startSQLite},
		{"memory", "memory", memoryRows(), func(context.Context) (string, func() error, error) {
			return "mem://", func() error { return nil }, nil
		}},
	}
}

// chosen returns the engines of a comma-separated list. "" selects all.
func chosen(list string) ([]engine, error) {
	all := engines()
	if list == "" {
		return all, nil
	}
	var some []engine
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(e engine) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown engine %q; known are rabbit, redis, nats, hworker, postgres, sqlite, memory", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

func startRabbit(ctx context.Context) (string, func() error, error) {
	s, err := testserver.StartRabbit(ctx, testserver.RabbitConfig{})
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}

func startRedis(ctx context.Context) (string, func() error, error) {
	s, err := testserver.StartRedis(ctx, testserver.RedisConfig{AOF: "everysec"})
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}

func startHworker(ctx context.Context) (string, func() error, error) {
	url, stop, err := startRedis(ctx)
	return "hworker+" + url, stop, err
}

func startNATS(ctx context.Context) (string, func() error, error) {
	s, err := testserver.StartNATS(ctx, testserver.NATSConfig{})
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}

func startPostgres(ctx context.Context) (string, func() error, error) {
	s, err := testserver.StartPostgres(ctx, testserver.PostgresConfig{})
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}

func startSQLite(context.Context) (string, func() error, error) {
	dir, err := os.MkdirTemp("", "swarmiji-bench-")
	if err != nil {
		return "", nil, err
	}
	return "sqlite://" + filepath.Join(dir, "bench.db"), func() error { return os.RemoveAll(dir) }, nil
}
