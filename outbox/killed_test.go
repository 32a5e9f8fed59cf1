package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// The settings of a relay in a process of its own.
const (
	memberFrom      = "SWARMIJI_OUTBOX_TEST_FROM"
	memberTo        = "SWARMIJI_OUTBOX_TEST_TO"
	memberNamespace = "SWARMIJI_OUTBOX_TEST_NAMESPACE"
	memberLease     = "SWARMIJI_OUTBOX_TEST_LEASE"
)

// member is a relay that runs until it is told to stop or killed.
func member() (err error) {
	ctx, stop := suite.UntilStopped()
	defer stop()
	swarm, err := open.Open(context.WithoutCancel(ctx), os.Getenv(memberTo), open.Options{Namespace: os.Getenv(memberNamespace), Logger: quiet})
	if err != nil {
		return err
	}
	s, db, err := store(os.Getenv(memberFrom))
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(os.Getenv(memberLease))
	if err != nil {
		return err
	}
	r, err := outbox.New(outbox.Config{Store: s, Broker: swarm.Broker, Lease: lease, Logger: quiet})
	if err != nil {
		return err
	}
	err = r.Run(ctx)
	end := context.Background()
	return errors.Join(err, s.Close(end), db.Close(end), swarm.Close(end))
}

// target is the queue to which relays publish.
type target struct {
	url, namespace string

	mu  sync.Mutex
	got []string // ids in the order of the deliveries
}

// consume receives and acknowledges all messages until the end of the test.
func consume(t *testing.T, url string) *target {
	t.Helper()
	c := &target{url: url, namespace: testserver.Namespace()}
	swarm := openAt(t, url, c.namespace)
	sub, err := swarm.Broker.Subscribe(testwait.Long(t), "work", broker.SubscribeOptions{Prefetch: 100})
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			d, err := sub.Receive(ctx)
			if err != nil {
				return
			}
			c.mu.Lock()
			c.got = append(c.got, d.Message().ID)
			c.mu.Unlock()
			if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("Ack: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

// openAt opens a broker until the end of the test.
func openAt(t *testing.T, url, namespace string) *open.Swarm {
	t.Helper()
	swarm, err := open.Open(testwait.Long(t), url, open.Options{Namespace: namespace, Logger: quiet})
	must(t, err)
	t.Cleanup(func() { must(t, swarm.Close(testwait.Long(t))) })
	return swarm
}

// received returns the ids in the order of their deliveries.
func (c *target) received() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// different returns the number of ids that were received.
func (c *target) different() int {
	ids := c.received()
	slices.Sort(ids)
	return len(slices.Compact(ids))
}

const writers = 4

// write runs n transactions of the user, half of which roll back. Each writes a row of the user and
// a message. A writer begins each transaction after the end of the one before, and has its own
// keys. It returns the committed ids.
func (l *lane) write(phase string, n int) (committed []string) {
	l.t.Helper()
	ctx := testwait.Long(l.t)
	_, err := l.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS purchase (id text PRIMARY KEY)")
	must(l.t, err)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range n / writers {
				id := fmt.Sprintf("%s-%d-%05d", phase, w, i)
				kept, err := l.purchase(ctx, id, fmt.Sprint("key-", w, "-", i%3))
				if err != nil {
					l.t.Errorf("transaction %s: %v", id, err)
					return
				}
				if kept {
					mu.Lock()
					committed = append(committed, id)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return committed
}

// purchase runs one transaction of the user, and reports whether it committed.
func (l *lane) purchase(ctx context.Context, id, key string) (bool, error) {
	u, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = u.Rollback() }() // an error says that it has ended
	if _, err := u.ExecContext(ctx, "INSERT INTO purchase (id) VALUES ($1)", id); err != nil {
		return false, err
	}
	err = l.store.PublishTx(ctx, sqltx.Wrap(u), []broker.Outgoing{{Queue: "work", OrderKey: key, Message: &broker.Message{ID: id, Body: []byte(key)}}})
	if err != nil || rand.N(2) == 0 {
		return false, err
	}
	return true, u.Commit()
}

// judge reports messages that are missing or were not committed, and returns the number of repeats.
func judge(t *testing.T, committed, received []string) (repeats int) {
	t.Helper()
	times := make(map[string]int)
	for _, id := range received {
		times[id]++
	}
	for _, id := range committed {
		if times[id] == 0 {
			t.Errorf("the message of the committed transaction %s is missing", id)
		}
		repeats += max(0, times[id]-1)
		delete(times, id)
	}
	for id := range times {
		t.Errorf("%s was received and not committed", id)
	}
	return repeats
}

// ordered reports messages of a key whose first deliveries were out of order. Ids of a key ascend.
func ordered(t *testing.T, received []string) {
	t.Helper()
	last, seen := make(map[string]string), make(map[string]bool)
	for _, id := range received {
		if seen[id] {
			continue
		}
		seen[id] = true
		var phase string
		var w, i int
		if _, err := fmt.Sscanf(strings.ReplaceAll(id, "-", " "), "%s %d %d", &phase, &w, &i); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(phase, w, i%3)
		if id < last[key] {
			t.Errorf("%s was received after %s", id, last[key])
		}
		last[key] = id
	}
}

// TestKilled commits and rolls back transactions of a user while relays run in processes of their
// own. In the first phase a second relay joins; each message arrives once, in the order of its key.
// In the second phase relays are killed with SIGKILL; no message is lost, and some are repeated.
func TestKilled(t *testing.T) {
	t.Parallel()
	transactions, kills := 200, 2
	if testserver.IsThorough() {
		transactions, kills = 2000, 20
	}
	for name, c := range map[string]struct {
		from func(t *testing.T) string
		to   func(t *testing.T) string
	}{
		"sqlite to redis":      {sqliteURL, func(t *testing.T) string { return testserver.RequireRedis(t).URL() }},
		"postgres to nats":     {postgresURL, func(t *testing.T) string { return testserver.RequireNATS(t).URL() }},
		"postgres to rabbitmq": {postgresURL, func(t *testing.T) string { return testserver.RequireRabbit(t).URL() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, c := newLane(t, c.from(t)), consume(t, c.to(t))
			relays := func(lease time.Duration) *suite.Processes {
				return suite.NewProcesses(t, func(node, line string) { t.Errorf("%s says %q", node, line) },
					memberFrom+"="+l.url, memberTo+"="+c.url, memberNamespace+"="+c.namespace, memberLease+"="+lease.String())
			}
			stop := func(all ...*suite.Process) {
				for _, p := range all {
					if err := p.Stop(); err != nil {
						t.Errorf("%s: %v", p.Node, err)
					}
				}
			}
			calmRelays := relays(calmLease)
			one := calmRelays.Start()
			joined := make(chan *suite.Process)
			go func() {
				for c.different() < transactions/10 && t.Context().Err() == nil {
					<-time.After(time.Millisecond)
				}
				joined <- calmRelays.Start()
			}()
			committed := l.write("calm", transactions)
			two := <-joined
			l.untilEmpty()
			testwait.Until(t, "all messages arrive", func() bool { return c.different() >= len(committed) })
			calm := c.received()
			if again := judge(t, committed, calm); again > 0 {
				t.Errorf("%d messages were repeated without a kill", again)
			}
			ordered(t, calm)
			stop(one, two)

			stormRelays := relays(stormLease)
			alive := []*suite.Process{stormRelays.Start(), stormRelays.Start()}
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				for i := range kills {
					for before := c.different(); c.different() < min(before+transactions/8/kills+1, len(calm)+transactions/3) && t.Context().Err() == nil; {
						<-time.After(time.Millisecond)
					}
					<-time.After(rand.N(20 * time.Millisecond))
					alive[i%2].Kill()
					alive[i%2] = stormRelays.Start()
				}
			}()
			stormy := l.write("storm", transactions)
			<-killed
			l.untilEmpty()
			testwait.Until(t, "all messages arrive", func() bool { return c.different() >= len(committed)+len(stormy) })
			stop(alive...)
			t.Logf("%d of %d messages were repeated", judge(t, stormy, c.received()[len(calm):]), len(stormy))
		})
	}
}

func sqliteURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") }

func postgresURL(t *testing.T) string {
	url, err := testserver.RequirePostgres(t).Database(testwait.Long(t), testserver.Namespace())
	must(t, err)
	return url
}

// TestBrokerAway shows that messages wait while the broker cannot be reached, and are sent when it
// is back, in the order of their keys.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireRedis(t)
	line := testserver.NewRelay(t, srv.Addr())
	l, c := newFile(t), consume(t, srv.URL())
	l.run(openAt(t, line.URL(srv.URL()), c.namespace).Broker, func(c *outbox.Config) { c.Lease = stormLease })
	committed := l.write("before", 20)
	l.untilEmpty()
	line.SetDown(true)
	committed = append(committed, l.write("away", 100)...)
	line.SetDown(false)
	l.untilEmpty()
	testwait.Until(t, "all messages arrive", func() bool { return c.different() >= len(committed) })
	judge(t, committed, c.received())
	ordered(t, c.received())
}
