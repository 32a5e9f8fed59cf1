package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/exporter"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// exporterPort is the port of the exporter's default address.
const exporterPort = "9477"

func (a *app) exporterCmd() *cobra.Command {
	var listen string
	var refresh time.Duration
	cmd := &cobra.Command{
		Use:   "exporter [QUEUE...]",
		Short: "Show the lengths of queues to Prometheus, also without consumers",
		Long: "Exporter serves http://ADDRESS/metrics until it is interrupted, then it ends with status 0. For each queue the\n" +
			"page has the numbers of ready, held, delayed and dead tasks, and the age of the oldest ready task, as far as\n" +
			"the broker knows them. It needs no consumer, so that a queue can be scaled up from zero. It changes nothing.\n\n" +
			"Without names it shows all queues, at most 1,000, and looks for new ones once a minute. RabbitMQ cannot list\n" +
			"its queues: there the names are needed. While the broker cannot be reached, swarmiji_exporter_up is 0 and the\n" +
			"queues are missing.\n\n" +
			"Everyone that can reach the address can read the names and lengths of queues. By default only this machine can.\n" +
			"--timeout limits the connecting and each look at the broker.",
		Example: "  swarmiji exporter\n" +
			"  swarmiji exporter reports mail --listen :" + exporterPort,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, q := range args {
				if err := task.CheckName(q); err != nil {
					return err
				}
			}
			if refresh < 0 {
				return fmt.Errorf("%w: --refresh is %v", cli.ErrUsage, refresh)
			}
			return a.export(cmd.Context(), args, listen, refresh)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "localhost:"+exporterPort, "`address` to listen on")
	cmd.Flags().DurationVar(&refresh, "refresh", 5*time.Second, "how long an answer of the broker is used for further requests")
	return cmd
}

// export serves the metrics until ctx ends.
func (a *app) export(ctx context.Context, names []string, listen string, refresh time.Duration) error {
	logger := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return a.WithSwarm(ctx, false, open.Options{Logger: logger}, func(ctx context.Context, s *open.Swarm) error {
		inspector, ok := capability.As[broker.Inspector](s.Broker)
		if !ok {
			return fmt.Errorf("this broker does not tell what waits: %w", broker.ErrUnsupported)
		}
		w := &exporter.Exporter{Inspector: inspector, Names: names, Refresh: refresh, Timeout: a.Timeout, Logger: logger}
		if len(names) == 0 {
			w.List = func(ctx context.Context) ([]string, error) { return broker.Queues(ctx, s.Broker) }
			if _, err := w.Queues(ctx); errors.Is(err, broker.ErrUnsupported) {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
		}
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.Stdout, "metrics at %s\n", ln.Addr()); err != nil {
			return errors.Join(err, ln.Close())
		}
		return w.Serve(ctx, ln, cli.CloseTime)
	})
}
