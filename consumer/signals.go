package consumer

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// RunUntilSignal is Run for a program: it stops the consumer softly at the first SIGTERM or interrupt, and at once at the
// second. It returns what Run returns; a program exits with a status other than 0 when that is not nil.
func RunUntilSignal(ctx context.Context, c *Consumer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for _, react := range []func(){cancel, c.Kill} {
			select {
			case <-signals:
				react()
			case <-ended:
				return
			}
		}
	}()
	return c.Run(ctx)
}
