package main

import (
	"fmt"
	"slices"
	"strings"
)

// engine is a broker with a table.
type engine struct {
	name  string
	title string
	rows  []row
}

func engines() []engine {
	return []engine{
		{"rabbit", "RabbitMQ, quorum queues, persistent messages", rabbitRows()},
		{"redis", "Redis, append-only file synced every second", redisRows()},
		{"nats", "NATS JetStream, file storage", natsRows()},
		{"hworker", "hworker's four keys in Redis, append-only file synced every second", hworkerRows()},
		{"postgres", "PostgreSQL, each commit on disk", postgresRows()},
		{"sqlite", "SQLite, each commit on disk", sqliteRows()},
		{"memory", "memory", memoryRows()},
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
