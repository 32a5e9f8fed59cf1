// Command soak is the load of long tests: a producer or a consumer that notes in a ledger what it sees happen to each
// task, while somebody kills, stops and cuts off everything around it. What such a ledger must look like afterwards is in
// internal/ledger.
//
// It is configured by the environment:
//
//	CHAOS_ROLE         producer or consumer
//	CHAOS_BROKER       rabbit, redis or nats, or left out: the URL says it; or none: the memory broker, with both roles in
//	                   this process whatever CHAOS_ROLE says
//	CHAOS_BROKER_URL   URLs of one cluster's nodes, separated by commas, as package open takes them
//	CHAOS_QUEUE        name of the queue ("soak")
//	CHAOS_LEDGER       file to which the ledger is appended
//	CHAOS_ID           name of this process (its role)
//	CHAOS_RATE         tasks per second of a producer; 0: as many as it can (0)
//	CHAOS_TASK_MS      how long a task takes on average; each takes half to one and a half of it (0)
//	CHAOS_CONCURRENCY  Submits under way at once, or workers (4)
//	CHAOS_MODE         atleast or atmost (atleast)
//	CHAOS_RESULTS      1: results are stored, and the producer waits for them
//	CHAOS_SEED         of what is left to chance (0)
//
// and, for shorter tests:
//
//	CHAOS_COUNT        the producer ends after so many tasks; 0: when it is told to (0)
//	CHAOS_RESUME       1: the producer first submits again, under the same ids, what an earlier one of the same CHAOS_ID has
//	                   submitted according to the ledger without knowing the outcome
//	CHAOS_PREFETCH     of the consumer; 0: 4 for each worker (0)
//	CHAOS_LEASE_MS     how long a broker with leases (redis, nats) waits for a sign of life of the consumer before it hands
//	                   its tasks to another; 0: the broker's own, 30000 (0)
//	CHAOS_GRACE_MS     how long a stopping consumer waits for running tasks (30000)
//	CHAOS_RESULTS_URL  where results are stored and groups gathered; left out: where the broker is
//	CHAOS_CRASHES      after how many starts that ended their process a task is given up; 0: the consumer's own, 3 (0)
//	CHAOS_ABSENT_MS    after how long without a sign of life a consumer counts as dead; 0: the consumer's own, 30000 (0)
//	CHAOS_STORE_RETRY_MS  how long settling a task is repeated; 0: the consumer's own, 60000 (0)
//
// At SIGTERM it drains and exits with status 0: a producer submits nothing more and waits for the results that are still to
// come, half a minute at most; a consumer gives back what it has not started and finishes the rest. A second signal ends a
// consumer at once. A broker that cannot be reached at the start is waited for.
//
// A consumer runs soak.work, which takes its time, soak.exit, which ends the process, and the steps of random workflows
// (internal/graphs), which take their time too.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	s, err := settingsFrom(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("soak", s.id)
	if err := run(context.Background(), s, log); err != nil {
		log.Error("ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s *settings, log *slog.Logger) error {
	switch {
	case s.memory:
		return runBoth(ctx, s, log)
	case s.role == roleConsumer:
		return runConsumer(ctx, s, log)
	default:
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return runProducer(ctx, s, log)
	}
}
