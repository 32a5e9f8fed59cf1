// Command bench measures one workload, with Swarmiji or with -raw on the bare client of the broker, and prints one line of
// JSON.
//
//	go run ./bench -broker URL -workload enqueue|drain|e2e|roundtrip|idle|due|delayed -n N -payload 100 -concurrency C
//	               [-raw] [-multiple] [-plain] [-results] [-events] [-metrics]
//
// The URL is any that package open takes. The workloads:
//
//   - enqueue: n tasks are submitted and confirmed. With -concurrency 1 they are pipelined: SubmitAll against a window of
//     1,000 unconfirmed messages; else C goroutines each await the confirmation of their own task.
//   - drain: n tasks are queued by another process, then consumed with prefetch C. Only the consumption is measured.
//   - e2e: both at once in one process. p50_ms and p99_ms are from submission to handler.
//   - roundtrip: C callers each submit a task, wait for its result, and repeat.
//   - idle: a consumer without tasks, for 5 seconds; cpu_percent is of one core. With -queues N it consumes N queues, with
//     -declared M there are M queues in all.
//   - due: n tasks are submitted for the same second, last_ms is when the last of them has started; then 200 single ones,
//     of which p50_ms, p99_ms and max_ms tell how late they start. None may start early.
//   - delayed: n tasks wait for their time; what that costs others is in the field delayed. For a million use -timeout 15m.
//
// Both sides give the same guarantees, with messages of the same size:
//
//   - amqp: a quorum queue with the same arguments, persistent and mandatory messages, publisher confirms, and an
//     acknowledgement of each delivery after its handling; with -multiple the raw client acknowledges 64 deliveries at once.
//   - redis: a stream with a consumer group. Enqueuing is pipelined XADD, consuming XREADGROUP of C entries, then XACK and
//     XDEL of all of them in one trip. A round trip stores the result with SET PX and tells of it with PUBLISH before XACK.
//   - nats: a file stream with the same settings, a subject and a Nats-Msg-Id for each message, PublishMsgAsync, a pull consumer
//     that acknowledges each. A round trip stores the result in a stream and tells of it by core NATS before it acknowledges.
//     With -plain the raw client has one subject and a stream without settings, for which Swarmiji has no equal.
//
// Results are ignored, no events are sent and nobody looks at metrics, except for -results, -events and -metrics.
//
// The tables that compare the two are made by ./bench/compare, and one of what features cost by ./bench/cost.
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

// workload does its work and reports what it measured.
type workload func(ctx context.Context, cfg *config) (Report, error)

func workloads() map[string]workload {
	return map[string]workload{
		"enqueue": enqueue, "drain": drain, "e2e": endToEnd, "roundtrip": roundTrip, "idle": idle, "due": due, "delayed": delayed,
		fill: fillQueue, watch: watchQueue, // not for users: the other processes of drain and delayed
	}
}

// parseFlags returns nil and no error when only help was asked for.
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
