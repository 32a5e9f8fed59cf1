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

// Stats implements [broker.Inspector]. Held counts the jobs of all workers of the queue; Dead are
// the failed and the broken ones.
func (b *Broker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	k, err := keysOf(queue)
	if err != nil {
		return broker.Stats{}, err
	}
	answer, err := b.run(ctx, "stats", b.scripts.show, k.all(), "sizes")
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

// Purge implements [broker.Inspector].
func (b *Broker) Purge(ctx context.Context, queue string) (int, error) {
	k, err := keysOf(queue)
	if err != nil {
		return 0, err
	}
	return b.number(ctx, "purge", b.scripts.purge, []string{k.jobs})
}

// Destroy deletes the four keys of a queue: all that waits, what is in progress, and the records of what failed.
func (b *Broker) Destroy(ctx context.Context, queue string) error {
	k, err := keysOf(queue)
	if err != nil {
		return err
	}
	_, err = b.number(ctx, "destroy", b.scripts.destroy, k.all())
	return err
}

// Job is a job as it stands in a queue.
type Job struct {
	UUID  string          // that keeps it apart from its equals
	Value json.RawMessage // as any program wrote it
}

// Jobs returns the jobs that wait, the newest first. Those that cannot be read are left out.
func (b *Broker) Jobs(ctx context.Context, queue string) ([]Job, error) {
	return b.jobs(ctx, queue, "jobs")
}

// Failed returns the failed jobs that are kept, the newest first. Those that cannot be read are left out.
func (b *Broker) Failed(ctx context.Context, queue string) ([]Job, error) {
	return b.jobs(ctx, queue, "failed")
}

func (b *Broker) jobs(ctx context.Context, queue, which string) ([]Job, error) {
	payloads, err := b.show(ctx, queue, which)
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for _, p := range payloads {
		if uuid, value, err := split(p); err == nil {
			uuid, _, _ = strings.Cut(uuid, beside)
			jobs = append(jobs, Job{UUID: uuid, Value: value})
		}
	}
	return jobs, nil
}

// Noted is a payload with a time: of a broken job when it was found to be so, of one in progress when it was started.
type Noted struct {
	Payload string    // byte for byte
	At      time.Time // zero if it is no time
}

// Broken returns the jobs that could not be read, the oldest first. Most likely another version, or another program, uses
// the same queue.
func (b *Broker) Broken(ctx context.Context, queue string) ([]Noted, error) {
	return b.noted(ctx, queue, "broken")
}

// Progress returns the jobs in progress, the oldest first.
func (b *Broker) Progress(ctx context.Context, queue string) ([]Noted, error) {
	return b.noted(ctx, queue, "progress")
}

func (b *Broker) noted(ctx context.Context, queue, which string) ([]Noted, error) {
	list, err := b.show(ctx, queue, which)
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

// show reads one of the four keys.
func (b *Broker) show(ctx context.Context, queue, which string) ([]string, error) {
	k, err := keysOf(queue)
	if err != nil {
		return nil, err
	}
	return b.texts(ctx, which, b.scripts.show, k.all(), which)
}

// Debug writes what waits in a queue and what is in progress to w, at the given pace (0: once a second), until ctx ends.
func (b *Broker) Debug(ctx context.Context, queue string, every time.Duration, w io.Writer) error {
	if every <= 0 {
		every = time.Second
	}
	pace := time.NewTicker(every)
	defer pace.Stop()
	for {
		jobs, err := b.show(ctx, queue, "jobs")
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
