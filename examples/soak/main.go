// Command soak is the load of long tests: a producer or a consumer that records in a ledger the
// events of each task. Meanwhile a test kills, stops and cuts off the processes around it. The
// rules for such a ledger are in internal/ledger.
//
// It is configured by the environment:
//
//	CHAOS_ROLE         producer or consumer
//	CHAOS_BROKER       rabbit, redis, nats, postgres, sqlite or none; by default the URL decides;
//	                   none: the memory broker, with both roles in this process
//	                   whatever CHAOS_ROLE is
//	CHAOS_BROKER_URL   URLs of one cluster's nodes, separated by commas,
//	                   as package open accepts them
//	CHAOS_QUEUE        name of the queue ("soak")
//	CHAOS_LEDGER       file to which the ledger is appended
//	CHAOS_ID           name of this process (its role)
//	CHAOS_RATE         tasks per second of a producer; 0: as many as it can (0)
//	CHAOS_TASK_MS      average duration of a task; each takes half to one and a half of it (0)
//	CHAOS_CONCURRENCY  parallel Submit calls, or workers (4)
//	CHAOS_MODE         atleast or atmost (atleast)
//	CHAOS_RESULTS      1: results are stored, and the producer waits for them
//	CHAOS_SEED         seed of random choices (0)
//
// and, for shorter tests:
//
//	CHAOS_COUNT        number of tasks after which the producer ends; 0: at a signal (0)
//	CHAOS_RESUME       1: the producer first submits again, with the same ids, the tasks that
//	                   an earlier producer of the same CHAOS_ID submitted, according to the
//	                   ledger, without a known outcome
//	CHAOS_PREFETCH     prefetch of the consumer; 0: it follows the work (0)
//	CHAOS_LEASE_MS     how long a broker with leases (all but rabbit) waits for a sign of life of
//	                   the consumer before it redelivers its tasks; 0: the broker's own, 30000 (0)
//	CHAOS_GRACE_MS     how long a stopping consumer waits for running tasks (30000)
//	CHAOS_RESULTS_URL  store of results and groups; by default the broker's
//	CHAOS_CRASHES      number of starts that ended their process after which a task is
//	                   dead-lettered; 0: the consumer's own, 3 (0)
//	CHAOS_ABSENT_MS    time without a sign of life after which a consumer counts as dead;
//	                   0: the consumer's own, 30000 (0)
//	CHAOS_STORE_RETRY_MS  how long settling a task is retried; 0: the consumer's own, 60000 (0)
//
// At SIGTERM it drains and exits with status 0. A producer submits no further tasks and waits for
// the missing results, half a minute at most. A consumer gives back the tasks that it has not
// started and finishes the others. A second signal ends a consumer at once. If the broker cannot be
// reached at the start, the program waits for it.
//
// A consumer runs soak.work, which takes its time, and soak.exit, which ends the process. It also
// runs the steps of random workflows (internal/graphs), which take their time too.
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
