// Command bench measures one workload, with Swarmiji or with -raw on the bare client of the broker.
// It prints one line of JSON.
//
//	go run ./bench -broker URL -workload enqueue|drain|e2e|roundtrip|idle|due|delayed|long
//	               -n N -payload 100 -concurrency C
//	               [-raw] [-multiple] [-plain] [-results] [-events] [-metrics]
//
// The URL is any that package open accepts. The workloads:
//
//   - enqueue: n tasks are submitted and confirmed. With -concurrency 1 they are pipelined:
//     SubmitAll, compared with a window of 1,000 unconfirmed messages. Otherwise C goroutines each
//     wait for the confirmation of their own task.
//   - drain: another process queues n tasks, which are then consumed with prefetch C. Only the
//     consumption is measured.
//   - e2e: both at the same time in one process. p50_ms and p99_ms are from submission to handler.
//   - roundtrip: C callers each submit a task, wait for its result, and repeat.
//   - idle: a consumer without tasks, for 10 seconds or -for; cpu_percent is of one core, and so is
//     server_cpu_percent, the share of a PostgreSQL server on this machine. With -queues N it
//     consumes N queues, with -declared M there are M queues in all.
//   - due: n tasks are submitted for the same second, and last_ms is the time until the last of
//     them has started. Then follow 200 single tasks: p50_ms, p99_ms and max_ms show how late they
//     start. A task that starts early is an error.
//   - delayed: n tasks wait for their time; the field delayed shows how they affect others. For a
//     million use -timeout 15m.
//   - long: n tasks pass through the queue, of which at most 20,000 wait. The field steps has the
//     rate of each tenth, and the size of PostgreSQL's table. With -hold another session has a
//     REPEATABLE READ transaction open all the time.
//
// Both sides give the same guarantees, with messages of the same size:
//
//   - amqp: a quorum queue with the same arguments, persistent and mandatory messages, publisher
//     confirms, and an acknowledgement of each delivery after its handling. With -multiple the raw
//     client acknowledges 64 deliveries at once.
//   - redis: a stream with a consumer group. Tasks are enqueued by pipelined XADD. They are
//     consumed by XREADGROUP of C entries, then XACK and XDEL of all of them in one round trip. A
//     round trip stores the result with SET PX and announces it with PUBLISH before XACK.
//   - nats: a file stream with the same settings. The client uses PublishMsgAsync and a pull
//     consumer that acknowledges each message. Each message has a subject and a Nats-Msg-Id. A
//     round trip stores the result in a stream and announces it by core NATS before the
//     acknowledgement. With -plain the raw client has one subject and a stream without settings,
//     for which Swarmiji has no equivalent.
//   - postgres and sqlite: one connection and a table with the same keys. 1,000 tasks are inserted
//     by one statement (SQLite: in one transaction). C tasks are claimed with a lease and a token,
//     then deleted by another transaction. Each commit is on disk. All tasks of the database are
//     removed at the end.
//
// Without -results, -events and -metrics, results are ignored, no events are sent and no metrics
// are read.
//
// ./bench/compare makes the tables that compare the two sides, and ./bench/cost makes a table of
// the cost of features.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	cfg, err := parseFlags(args)
	if err != nil || cfg == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	work, ok := workloads()[cfg.Workload]
	if !ok {
		return fmt.Errorf("unknown workload %q", cfg.Workload)
	}
	report, err := profiled(cfg, func() (Report, error) { return work(ctx, cfg) })
	if err != nil || cfg.Workload == fill {
		return err
	}
	report.describe(cfg)
	return json.NewEncoder(os.Stdout).Encode(report)
}

// workload runs one workload and returns its measurements.
type workload func(ctx context.Context, cfg *config) (Report, error)

func workloads() map[string]workload {
	return map[string]workload{
		"enqueue": enqueue, "drain": drain, "e2e": endToEnd, "roundtrip": roundTrip, "idle": idle, "due": due, "delayed": delayed, "long": long,
		fill: fillQueue, watch: watchQueue, // not for users: the other processes of drain and delayed
	}
}

// parseFlags returns nil and no error if only help was requested.
func parseFlags(args []string) (*config, error) {
	cfg := &config{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	cfg.register(fs)
	switch err := fs.Parse(args); {
	case err == flag.ErrHelp: //nolint:errorlint // the flag package returns the bare value
		return nil, nil
	case err != nil:
		return nil, err
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return cfg, cfg.complete()
}
