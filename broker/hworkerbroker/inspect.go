package hworkerbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// Stats implements [broker.Inspector]. Held counts the jobs of all workers of the queue. Dead
// counts the failed and the broken jobs. Delayed is 0, since no job can be delayed, and DeadDropped
// is unknown, -1. A queue without keys has all counters 0. It waits for the server.
//
// Returns ErrMalformed for a queue name that is not valid, ErrUnavailable if ctx ends first,
// ErrClosed after Close, and other errors of the server.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	k, err := keysOf(queue)
	if err != nil {
		return broker.Stats{}, err
	}
	answer, err := b.runScript(ctx, "stats", b.scripts.show, k.all(), "sizes")
	if err != nil {
		return broker.Stats{}, err
	}
	list, _ := answer.([]any)
	var n [4]int64
	for i := range min(len(list), len(n)) {
		n[i], _ = list[i].(int64)
	}
	return broker.Stats{Ready: int(n[0]), Held: int(n[1]), Dead: int(n[2] + n[3]), DeadDropped: -1}, nil
}

// Purge implements [broker.Inspector]. It deletes the waiting jobs and returns their number. Jobs
// in progress and dead letters stay. It waits for the server. Returns ErrMalformed for a queue name
// that is not valid, and the errors of Stats. After ErrIndeterminate the jobs may be deleted.
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.runInt(ctx, "purge", b.scripts.purge, []string{k.jobs})
}

// Destroy deletes the four keys of a queue: the waiting jobs, the jobs in progress, and the failed
// and broken jobs. It waits for the server. Settlements of the deleted jobs return ErrLeaseLost
// afterwards. Returns ErrMalformed for a queue name that is not valid, and the errors of Stats.
// After ErrIndeterminate the keys may be deleted.
func (b *Broker) Destroy(ctx context.Context, queue string) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	_, err = b.runInt(ctx, "destroy", b.scripts.destroy, k.all())
	return err
}

// Job is a job in a queue.
type Job struct {
	UUID  string          // distinguishes it from equal jobs
	Value json.RawMessage // unchanged, as any program wrote it
}

// Jobs returns the waiting jobs, the newest first. Jobs that cannot be read are left out. It waits
// for the server and returns the errors of Stats.
func (b *Broker) Jobs(ctx context.Context, queue string) ([]Job, error) {
	return b.jobs(ctx, queue, "jobs")
}

// Failed returns the stored failed jobs, the newest first. Jobs that cannot be read are left out.
// It waits for the server and returns the errors of Stats.
func (b *Broker) Failed(ctx context.Context, queue string) ([]Job, error) {
	return b.jobs(ctx, queue, "failed")
}

// jobs returns the jobs of one key of a queue, "jobs" or "failed". Jobs that cannot be read are
// left out. It waits for the server. Returns the errors of readKey.
func (b *Broker) jobs(ctx context.Context, queue, which string) ([]Job, error) {
	payloads, err := b.readKey(ctx, queue, which)
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for _, p := range payloads {
		if uuid, value, err := split(p); err == nil {
			uuid, _, _ = strings.Cut(uuid, uuidExtras)
			jobs = append(jobs, Job{UUID: uuid, Value: value})
		}
	}
	return jobs, nil
}

// Noted is a payload with a time: when a broken job was found broken, or when a job in progress was
// started.
type Noted struct {
	Payload string    // unchanged, byte for byte
	At      time.Time // zero if the stored time cannot be read
}

// Broken returns the jobs that could not be read, the oldest first. The usual cause is another
// version or another program on the same queue. It waits for the server and returns the errors of
// Stats.
func (b *Broker) Broken(ctx context.Context, queue string) ([]Noted, error) {
	return b.noted(ctx, queue, "broken")
}

// Progress returns the jobs in progress, the oldest first. It waits for the server and returns the
// errors of Stats.
func (b *Broker) Progress(ctx context.Context, queue string) ([]Noted, error) {
	return b.noted(ctx, queue, "progress")
}

// noted returns the payloads and times of one key of a queue, "broken" or "progress", the oldest
// first. A time that cannot be read is zero. It waits for the server. Returns the errors of
// readKey.
func (b *Broker) noted(ctx context.Context, queue, which string) ([]Noted, error) {
	list, err := b.readKey(ctx, queue, which)
	if err != nil {
		return nil, err
	}
	var notes []Noted
	for i := 0; i+1 < len(list); i += 2 {
		notes = append(notes, Noted{Payload: list[i], At: parseStamp(list[i+1])})
	}
	slices.SortFunc(notes, func(x, y Noted) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Payload, y.Payload)) })
	return notes, nil
}

// readKey returns the values of one of the four keys: "jobs", "progress", "broken" or "failed". For
// the two hashes, "progress" and "broken", payloads and times alternate. It waits for the server.
// Returns ErrMalformed for a queue name that is not valid, and the errors of runScript.
func (b *Broker) readKey(ctx context.Context, queue, which string) ([]string, error) {
	k, err := keysOf(queue)
	if err != nil {
		return nil, err
	}
	return b.runTexts(ctx, which, b.scripts.show, k.all(), which)
}

// Debug writes the waiting jobs and the jobs in progress of a queue to w, at once and then at the
// given interval. When ctx ends it returns nil. An interval of 0 or less means one second. It
// returns the first error of a read or of w, also if ctx ended during the read.
func (b *Broker) Debug(ctx context.Context, queue string, every time.Duration, w io.Writer) error {
	if every <= 0 {
		every = time.Second
	}
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		jobs, err := b.readKey(ctx, queue, "jobs")
		var progress []Noted
		if err == nil {
			progress, err = b.Progress(ctx, queue)
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "jobs: %q\nin progress: %q\n", jobs, progress)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
	}
}
