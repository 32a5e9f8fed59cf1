package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawRedis is the bare Redis client, with a stream and a consumer group.
type rawRedis struct {
	cfg    *config
	client *redis.Client
	stream string
	reply  string // channel of the replies
	body   string // as many bytes as a task of Swarmiji has

	calls   calls
	replies *redis.PubSub
}

// The fields of an entry.
const (
	fieldID   = "i"
	fieldCall = "c"
	fieldBody = "b"
)

// block limits how long a read waits at the server. A client that must end does so after that time
// at the latest.
const block = 250 * time.Millisecond

func dialRawRedis(ctx context.Context, cfg *config) (client, error) {
	client, err := redisClient(cfg)
	if err != nil {
		return nil, err
	}
	c := &rawRedis{cfg: cfg, client: client, stream: cfg.Queue + ":raw", reply: cfg.Queue + ":reply"}
	size, err := bodySize(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	c.body = strings.Repeat("b", size-stampSize)
	if cfg.Workload == "roundtrip" || cfg.Workload == fill && cfg.Results {
		if err := c.listen(ctx); err != nil {
			return nil, errors.Join(err, c.close(ctx))
		}
	}
	return c, nil
}

// redisClient makes a client of the broker's server. It ignores the URL parameters, which only
// Swarmiji understands. Returns an error unless the scheme is redis or hworker+redis.
func redisClient(cfg *config) (*redis.Client, error) {
	u, err := url.Parse(strings.TrimPrefix(cfg.Broker, "hworker+"))
	if err != nil || u.Scheme != "redis" {
		return nil, fmt.Errorf("the bare client wants a redis:// URL of one server, not %s", cfg.address())
	}
	u.RawQuery = ""
	o, err := redis.ParseURL(u.String())
	if err != nil {
		// the client's error may contain the password
		return nil, fmt.Errorf("%s is no URL of a Redis server", cfg.address())
	}
	o.Protocol = 2
	return redis.NewClient(o), nil
}

func (c *rawRedis) declare(ctx context.Context) error {
	err := c.client.XGroupCreateMkStream(ctx, c.stream, "g", "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil // the group exists
	}
	return err
}

// entry returns a task as an entry of the stream.
func (c *rawRedis) entry(call string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: c.stream, Values: []any{
		fieldID, someID, fieldCall, call, fieldBody, string(stamped(stampSize)) + c.body,
	}}
}

func (c *rawRedis) submit(ctx context.Context) error { return c.client.XAdd(ctx, c.entry("")).Err() }

// submitAll sends n tasks. It prepares the next pipeline while one is in progress.
func (c *rawRedis) submitAll(ctx context.Context, n int) error {
	sent := make(chan error, 1)
	sent <- nil
	for n > 0 {
		pipe := c.client.Pipeline()
		for range min(n, window) {
			pipe.XAdd(ctx, c.entry(""))
		}
		n -= pipe.Len()
		if err := <-sent; err != nil {
			return err
		}
		go func() {
			_, err := pipe.Exec(ctx)
			sent <- err
		}()
	}
	return <-sent
}

// listen subscribes to the replies and ends the calls that they answer.
func (c *rawRedis) listen(ctx context.Context) error {
	c.replies = c.client.Subscribe(ctx, c.reply)
	if _, err := c.replies.Receive(ctx); err != nil { // the confirmation
		return err
	}
	go func() {
		for m := range c.replies.Channel() {
			id, _, _ := strings.Cut(m.Payload, " ")
			c.calls.end(id)
		}
	}()
	return nil
}

func (c *rawRedis) call(ctx context.Context) error {
	id, done := c.calls.begin()
	if err := c.client.XAdd(ctx, c.entry(id)).Err(); err != nil {
		return err
	}
	return await(ctx, done)
}

func (c *rawRedis) serve(ctx context.Context, seen func([]byte)) error {
	for ctx.Err() == nil {
		streams, err := c.client.XReadGroup(context.WithoutCancel(ctx), &redis.XReadGroupArgs{
			Group: "g", Consumer: "c", Streams: []string{c.stream, ">"}, Count: int64(max(c.cfg.Prefetch, 1)), Block: block,
		}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		for _, s := range streams {
			if c.cfg.Workload == "roundtrip" {
				err = c.answer(s.Messages)
			} else {
				err = c.settle(s.Messages, seen)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// settle handles entries. With results it stores and announces one for each entry. Then it
// acknowledges and removes the entries. All that is one round trip.
func (c *rawRedis) settle(ms []redis.XMessage, seen func([]byte)) error {
	pipe := c.client.Pipeline()
	ids := make([]string, len(ms))
	for i, m := range ms {
		body, _ := m.Values[fieldBody].(string)
		seen([]byte(body))
		ids[i] = m.ID
		if c.cfg.Results {
			c.store(pipe, m.ID, body)
		}
	}
	return c.settled(pipe, ids...)
}

// store adds commands to pipe that store and announce the result of an entry.
func (c *rawRedis) store(pipe redis.Pipeliner, id, body string) {
	ctx := context.Background() // entries in progress are completed
	pipe.Set(ctx, c.stream+":result:"+id, body, resultTTL)
	pipe.Publish(ctx, c.reply, id+" "+body)
}

// settled executes pipe, acknowledges entries and removes them.
func (c *rawRedis) settled(pipe redis.Pipeliner, ids ...string) error {
	ctx := context.Background()
	pipe.XAck(ctx, c.stream, "g", ids...)
	pipe.XDel(ctx, c.stream, ids...)
	_, err := pipe.Exec(ctx)
	return err
}

// answer stores and announces the result of each entry, then acknowledges the entry.
func (c *rawRedis) answer(ms []redis.XMessage) error {
	errs := make(chan error, len(ms))
	for _, m := range ms {
		go func() { errs <- c.respond(m) }() // otherwise one entry would wait for another
	}
	var all []error
	for range ms {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (c *rawRedis) respond(m redis.XMessage) error {
	call, _ := m.Values[fieldCall].(string)
	body, _ := m.Values[fieldBody].(string)
	pipe := c.client.Pipeline()
	c.store(pipe, call, body)
	return c.settled(pipe, m.ID)
}

func (c *rawRedis) left(ctx context.Context) (int, error) {
	n, err := c.client.XLen(ctx, c.stream).Result()
	return int(n), err
}

func (c *rawRedis) remove(ctx context.Context) error { return removeKeys(ctx, c.cfg) }

func (c *rawRedis) close(context.Context) error {
	var errs []error
	if c.replies != nil {
		errs = append(errs, c.replies.Close())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

// removeKeys removes all keys that contain the queue's name. It uses UNLINK for large numbers of
// keys, so that the server is not blocked.
func removeKeys(ctx context.Context, cfg *config) error {
	client, err := redisClient(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // no command is in progress
	keys := client.Scan(ctx, 0, "*"+cfg.Queue+"*", 1000).Iterator()
	var some []string
	for keys.Next(ctx) {
		if some = append(some, keys.Val()); len(some) == 1000 {
			if err := client.Unlink(ctx, some...).Err(); err != nil {
				return err
			}
			some = some[:0]
		}
	}
	if len(some) > 0 {
		err = client.Unlink(ctx, some...).Err()
	}
	return errors.Join(err, keys.Err())
}
