package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawHworker is the bare Redis client with hworker's keys. Jobs go into a list, and a script moves
// them into the table of jobs in progress. Replies are stored and published as in rawRedis.
type rawHworker struct {
	*rawRedis
	jobs     string
	progress string
	ids      atomic.Uint64
}

// takeJobs is a script that moves some jobs from the list into the table, and returns them.
const takeJobs = `
local t = redis.call('TIME')
local got = redis.call('RPOP', KEYS[1], ARGV[1])
if not got then return {} end
for i = 1, #got do redis.call('HSET', KEYS[2], got[i], t[1]) end
return got`

// idlePoll is the wait of a worker that found no job. The worker must poll, because a script cannot
// contain a blocking pop.
const idlePoll = time.Millisecond

func dialRawHworker(ctx context.Context, cfg *config) (client, error) {
	c, err := dialRawRedis(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &rawHworker{
		rawRedis: c.(*rawRedis), //nolint:forcetypeassert // as it was made
		jobs:     "hworker-jobs-" + cfg.Queue, progress: "hworker-progress-" + cfg.Queue,
	}, nil
}

func (c *rawHworker) declare(context.Context) error { return nil }

// rawJob is a job. It may hold the id of its call.
type rawJob struct {
	Call  string `json:"c"`
	Stamp string `json:"s"`
	Body  string `json:"b"`
}

// payload returns a job with its own id, encoded as JSON.
func (c *rawHworker) payload(call string) (string, error) {
	job := rawJob{Call: call, Stamp: base64.StdEncoding.EncodeToString(stamped(stampSize)), Body: c.body}
	id := fmt.Sprintf("%s%012x", someID[:24], c.ids.Add(1)) // no two jobs are equal
	text, err := json.Marshal([]any{id, job})
	return string(text), err
}

func (c *rawHworker) push(ctx context.Context, call string) error {
	payload, err := c.payload(call)
	if err != nil {
		return err
	}
	return c.client.LPush(ctx, c.jobs, payload).Err()
}

func (c *rawHworker) submit(ctx context.Context) error { return c.push(ctx, "") }

// submitAll pushes as many jobs per command as Swarmiji does.
func (c *rawHworker) submitAll(ctx context.Context, n int) error {
	const together = 500
	for n > 0 {
		payloads := make([]any, min(n, together))
		for i := range payloads {
			p, err := c.payload("")
			if err != nil {
				return err
			}
			payloads[i] = p
		}
		if err := c.client.LPush(ctx, c.jobs, payloads...).Err(); err != nil {
			return err
		}
		n -= len(payloads)
	}
	return nil
}

func (c *rawHworker) call(ctx context.Context) error {
	id, done := c.calls.begin()
	if err := c.push(ctx, id); err != nil {
		return err
	}
	return await(ctx, done)
}

func (c *rawHworker) serve(ctx context.Context, seen func([]byte)) error {
	script := redis.NewScript(takeJobs)
	at := context.WithoutCancel(ctx) // jobs in progress are completed
	for ctx.Err() == nil {
		payloads, err := script.Run(at, c.client, []string{c.jobs, c.progress}, max(c.cfg.Prefetch, 1)).StringSlice()
		if err != nil {
			return err
		}
		if len(payloads) == 0 {
			time.Sleep(idlePoll)
			continue
		}
		if err := c.work(at, payloads, seen); err != nil {
			return err
		}
	}
	return nil
}

// work handles jobs and removes them from the table after their replies were sent.
func (c *rawHworker) work(ctx context.Context, payloads []string, seen func([]byte)) error {
	replies := c.client.Pipeline()
	for _, p := range payloads {
		var job rawJob
		parts := []any{new(string), &job}
		if err := json.Unmarshal([]byte(p), &parts); err != nil {
			return fmt.Errorf("a job cannot be read: %w", err)
		}
		stamp, err := base64.StdEncoding.DecodeString(job.Stamp)
		if err != nil {
			return fmt.Errorf("a job cannot be read: %w", err)
		}
		seen(stamp)
		if job.Call != "" {
			replies.Set(ctx, c.stream+":result:"+job.Call, job.Body, resultTTL)
			replies.Publish(ctx, c.reply, job.Call+" "+job.Body)
		}
	}
	if replies.Len() > 0 {
		if _, err := replies.Exec(ctx); err != nil {
			return err
		}
	}
	return c.client.HDel(ctx, c.progress, payloads...).Err()
}

func (c *rawHworker) left(ctx context.Context) (int, error) {
	waiting, err := c.client.LLen(ctx, c.jobs).Result()
	held, heldErr := c.client.HLen(ctx, c.progress).Result()
	return int(waiting + held), errors.Join(err, heldErr)
}
