package consumer_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestWaitForAVerdictIsLogged shows that a task that waits until its former consumer is known to be
// dead says so when the wait begins. A task whose former consumer has left in order does not wait.
func TestWaitForAVerdictIsLogged(t *testing.T) {
	for _, left := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &lines{}
			b := newTable(t, func(c *consumer.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			f := b.submit(1, task.WithID("s"))
			b.takeOnce(t)
			other := b.server.Connect()
			if _, err := other.NoteStart(t.Context(), "default", broker.Start{ID: "s", Nonce: "n", Node: "former", At: time.Now()}); err != nil {
				t.Fatal(err)
			}
			want := 1
			if left {
				must0(t, other.Leave(t.Context(), "former"))
				want = 0
			}
			must0(t, other.Close(t.Context()))
			begin := time.Now()
			b.run()
			time.Sleep(time.Second)
			synctest.Wait()
			line := "the task waits until its former consumer is known to be dead"
			if log.count(line) != want || log.count("at_most=30s former_node=former task_id=s") != want {
				t.Errorf("left in order: %v; the log is:\n%s", left, log.text())
			}
			if got, err := f.Get(t.Context()); err != nil || got != 1 {
				t.Errorf("%d, %v", got, err)
			}
			if waited := time.Since(begin) >= consumer.DefaultAbsentAfter; waited == left {
				t.Errorf("left in order: %v; it ran after %v", left, time.Since(begin))
			}
			if log.count(line) != want {
				t.Errorf("the wait was logged %d times", log.count(line))
			}
			b.end()
		})
	}
}
