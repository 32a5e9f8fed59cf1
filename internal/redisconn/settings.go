package redisconn

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CheckSettings looks at the server's settings and tells the logger, once in the life of the Conn, which of them weaken the
// promise that nothing confirmed is lost: eviction, no append-only file, an append-only file that is never flushed. Managed
// servers often forbid to look; then it says that nothing could be verified. It returns the sentences it told, and an error
// only if there was no answer; then it can be called again.
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

// Settings returns what [Conn.CheckSettings] would tell, however often it is called, and tells the logger nothing.
func (c *Conn) Settings(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	var found []string
	look := func(ctx context.Context, client *redis.Client) error {
		notes, err := settings(ctx, client)
		if err != nil {
			return classify(err, false)
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
		return nil, classify(err, false)
	}
	return found, nil
}

// settings returns what one server's settings mean for durability.
func settings(ctx context.Context, client *redis.Client) ([]string, error) {
	values := make(map[string]string)
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync"} {
		m, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			if a, answered := err.(redis.Error); answered && classOfAnswer(a) != ErrUnavailable { //nolint:errorlint // the server's own answer
				return []string{"redis: the server does not tell its settings (" + firstWord(err) + "); it could not be verified that nothing is evicted and all is kept on disk"}, nil
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

// firstWord is the code that begins a server's error, such as NOPERM.
func firstWord(err error) string {
	w, _, _ := strings.Cut(err.Error(), " ")
	return w
}
