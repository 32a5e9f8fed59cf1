package sqlbroker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestIdleQueuesShareStatements shows that the consumers of many idle queues ask the database
// together, and that a poll finds messages although nothing notifies their consumers.
func TestIdleQueuesShareStatements(t *testing.T) {
	for kind, url := range map[string]func() string{
		"sqlite":   func() string { return "sqlite://" + filepath.Join(memoryDir(t), "app.db") },
		"postgres": func() string { return testserver.RequirePostgres(t).URL() },
	} {
		t.Run(kind, func(t *testing.T) {
			const queues, polls = 100, 5
			at, ns := url(), testserver.Namespace()
			cfg := config(t, at, ns)
			cfg.Poll = 100 * time.Millisecond
			b, conn := open(t, cfg), sqltest.Conn(t, at)
			defer func() {
				if err := errors.Join(b.Close(testwait.Long(t)), conn.Close(testwait.Long(t))); err != nil {
					t.Error(err)
				}
			}()
			subs := make([]broker.Subscription, queues)
			for i := range subs {
				subs[i] = subscribed(testwait.Long(t), t, b, fmt.Sprint("q", i), 1)
			}
			testwait.Until(t, "the consumers have polled", func() bool {
				asked, _ := sqlbroker.Probes(b)
				return asked >= queues*polls
			})
			if asked, sent := sqlbroker.Probes(b); sent*10 > asked {
				t.Errorf("%d questions took %d statements", asked, sent)
			}
			for _, i := range []int{0, queues - 1} { // also one that is not due at once
				due := time.Now().Add(time.Duration(i) * time.Millisecond).UnixMicro()
				// without a notification
				err := conn.Update(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO swarmiji_message (queue, level, due, id, generation, priority, expires, content_type, body)
						SELECT id, 0, $3, 'm', 0, 0, 0, '', '' FROM swarmiji_queue WHERE namespace = $1 AND name = $2`, ns, fmt.Sprint("q", i), due)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := received(testwait.Long(t), t, subs[i]).Ack(testwait.Long(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
