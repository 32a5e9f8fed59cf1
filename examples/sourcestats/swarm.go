package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all" // the broker is any
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// countFile is the task. An unreadable file fails it, and with it the command, because a retry
// would not help.
var countFile = task.New[File, Stats]("sourcestats.count", task.WithTimeLimit(time.Minute), task.WithMaxRetries(0))

// prefetch is the number of files that a consumer holds. A file takes about a millisecond, so a
// larger number would save little and distribute the files unevenly.
const prefetch = 32

// closeTime limits the time to close the opened resources.
const closeTime = 10 * time.Second

// byTasks submits one task per file and adds up the results.
func byTasks(ctx context.Context, o *options, files []File) (total Totals, err error) {
	url := o.broker
	if url == "" {
		url = "mem://"
	}
	swarm, err := open.Open(ctx, url, open.Options{Name: "sourcestats", Logger: o.logger})
	if err != nil {
		return Totals{}, err
	}
	defer closing(&err, swarm.Close)
	if err := swarm.Ping(ctx); err != nil {
		return Totals{}, err
	}
	p, err := producer.New(producer.Config{
		Broker: swarm.Broker, Results: swarm.Results, Router: router.Static(o.queue), Timeout: time.Minute, Logger: o.logger,
	})
	if err != nil {
		return Totals{}, err
	}
	defer closing(&err, p.Close)

	run, consumers := newConsumerGroup(ctx)
	for range o.consumers {
		if o.broker == "" {
			c, err := newConsumer(o, swarm)
			if err != nil {
				return Totals{}, errors.Join(err, consumers.stop())
			}
			consumers.add(ctx, c.Run)
		} else {
			consumers.add(ctx, func(ctx context.Context) error { return runProcess(ctx, o) })
		}
	}
	total, err = gather(run, o, p, files)
	failures := consumers.stop()
	if errors.Is(err, errEarly) {
		err = nil // the failures already contain it
	}
	return total, errors.Join(err, failures)
}

// gather submits all files and adds up the results.
func gather(ctx context.Context, o *options, p *producer.Producer, files []File) (Totals, error) {
	futures, err := countFile.SubmitAll(ctx, p, files)
	if err != nil {
		return Totals{}, err
	}
	var t Totals
	bar := newBar(o.stderr, len(files))
	defer bar.end()
	for i, f := range futures {
		name := below(o.root, files[i].Path)
		s, err := f.Get(ctx)
		if err != nil {
			return Totals{}, fmt.Errorf("%s: %w", name, err)
		}
		t.add(s.in(name))
		bar.step()
	}
	return t, nil
}

// in returns s with the file's name as the file of its longest function.
func (s Stats) in(file string) Stats {
	if s.Longest.Lines > 0 {
		s.Longest.File = file
	}
	return s
}

// newConsumer makes a consumer of the queue.
func newConsumer(o *options, swarm *open.Swarm) (*consumer.Consumer, error) {
	c, err := swarm.Consumer(consumer.Config{
		Logger: o.logger,
		Queues: map[string]consumer.QueueConfig{o.queue: {Workers: o.workers, Prefetch: prefetch}},
	})
	if err != nil {
		return nil, err
	}
	return c, countFile.Handle(c, func(_ context.Context, f File) (Stats, error) { return count(f) })
}

// closing calls end with a time limit and joins its error to *err.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
