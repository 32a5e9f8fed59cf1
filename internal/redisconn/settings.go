package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CheckSettings reads the settings of the servers and logs a warning for each one that may lose
// confirmed data: eviction, no append-only file, or an append-only file that is never flushed. It
// logs once in the life of the Conn and returns the warnings; later calls return nil and ask
// nothing. It waits for the servers until ctx ends.
//
// Managed servers often forbid reading settings; the warning then says so. CheckSettings returns an
// error only if a server does not answer, and may then be called again.
func (c *Conn) CheckSettings(ctx context.Context) ([]string, error) {
	if c.checked.Load() {
		return nil, nil
	}
	found, err := c.Settings(ctx)
	if err != nil || c.checked.Swap(true) {
		return nil, err
	}
	for _, s := range found {
		c.logger.WarnContext(ctx, s)
	}
	return found, nil
}

// Settings returns the warnings of [Conn.CheckSettings], each once, and logs nothing. It asks the
// server, or all masters of a cluster, and waits for the answers until ctx ends. It may be called
// any number of times. After an error it returns no warnings.
func (c *Conn) Settings(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	var found []string
	look := func(ctx context.Context, client *redis.Client) error {
		notes, err := settings(ctx, client)
		if err != nil {
			return c.classify(err, false)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range notes {
			if !seen[s] {
				seen[s] = true
				found = append(found, s)
			}
		}
		return nil
	}
	_, err := c.await(ctx, func(ctx context.Context) (any, error) {
		switch client := c.client.(type) {
		case *redis.ClusterClient:
			return nil, client.ForEachMaster(ctx, look)
		case *redis.Client:
			return nil, look(ctx, client)
		}
		return nil, nil //nolint:nilnil // there is no other client
	})
	if err != nil {
		return nil, c.classify(err, false)
	}
	return found, nil
}

// settings asks one server for its settings, waits for the answers, and returns the warnings. A
// server that refuses to show them gives one warning. Returns an error if the server does not
// answer or cannot serve now.
func settings(ctx context.Context, client *redis.Client) ([]string, error) {
	values := make(map[string]string)
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync"} {
		m, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			a, answered := err.(redis.Error) //nolint:errorlint // the server's own answer
			if answered && !errors.Is(classOfAnswer(a), ErrUnavailable) {
				return []string{"redis: the server does not show its settings (" + firstWord(err) + "); eviction and persistence could not be verified"}, nil
			}
			return nil, err
		}
		values[name] = m[name]
	}
	var notes []string
	if p := values["maxmemory-policy"]; p != "noeviction" && p != "" {
		notes = append(notes, fmt.Sprintf("redis: maxmemory-policy is %q; a server that is short of memory may drop keys, and with them tasks; use noeviction", p))
	}
	switch {
	case values["appendonly"] == "no":
		notes = append(notes, "redis: appendonly is \"no\"; what was confirmed since the last snapshot is lost when the server dies; use appendonly yes")
	case values["appendfsync"] == "no":
		notes = append(notes, "redis: appendfsync is \"no\"; what was confirmed in the last half a minute may be lost when the machine dies; use everysec or always")
	}
	return notes, nil
}

// firstWord returns the code at the beginning of a server's error, such as NOPERM: the text up to
// the first space.
func firstWord(err error) string {
	w, _, _ := strings.Cut(err.Error(), " ")
	return w
}
