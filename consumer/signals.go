package consumer

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// RunUntilSignal calls c.Run and stops the consumer at the first SIGTERM or interrupt, as Stop
// does. A second signal stops it at once, as Kill does. It blocks until Run has returned, and
// returns its error; a program should exit with a status other than 0 if that is not nil. The end
// of ctx stops the consumer, too.
func RunUntilSignal(ctx context.Context, c *Consumer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for _, react := range []func(){c.Stop, c.Kill} {
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
