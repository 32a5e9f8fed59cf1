package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// memberDatabase is the URL of the database of a buyer.
const memberDatabase = "SWARMIJI_PRODUCER_TEST_DATABASE"

// openDatabase opens the database of a URL as the program of a user does.
func openDatabase(url string) (*sql.DB, error) {
	if file, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	}
	return sql.Open("pgx", url)
}

// buyer stores orders and submits their tasks, each in a transaction, until it is told to stop or
// killed. It rolls back half of them. It writes a line after the end of each.
func buyer() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	url := os.Getenv(memberDatabase)
	swarm, err := open.Open(ctx, url, open.Options{Logger: quiet})
	if err != nil {
		return err
	}
	db, err := openDatabase(url)
	if err != nil {
		return err
	}
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Logger: quiet})
	if err != nil {
		return err
	}
	if err := p.Connect(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", suite.ProcessNode(), worker, i)
				end, err := buy(db, p, id, i%2 == 0)
				if err != nil {
					end = "failed: " + err.Error()
				}
				_, _ = fmt.Fprintln(os.Stdout, end, id)
			}
		})
	}
	all.Wait()
	return errors.Join(p.Close(context.Background()), db.Close(), swarm.Close(context.Background()))
}

// buy stores an order and submits its task in one transaction. It says how the transaction ended.
func buy(db *sql.DB, p *producer.Producer, id string, commit bool) (string, error) {
	ctx := context.Background()
	own, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = own.Rollback() }() // an error says that it has ended
	if _, err := own.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
		return "", err
	}
	if _, err := number.SubmitTx(ctx, p, sqltx.Wrap(own), 1, task.WithID(task.ID(id))); err != nil {
		return "", err
	}
	if !commit {
		return "rolled-back", own.Rollback()
	}
	return "committed", own.Commit()
}

// TestTransactionsKilled kills processes that store orders and submit tasks. Each order in the
// database has one task, and no other task exists.
func TestTransactionsKilled(t *testing.T) {
	t.Parallel()
	for kind, url := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") },
		"postgres": func(t *testing.T) string {
			url, err := testserver.RequirePostgres(t).Database(t.Context(), testserver.Namespace())
			if err != nil {
				t.Fatal(err)
			}
			return url
		},
	} {
		t.Run(kind, func(t *testing.T) { killBuyers(t, url(t)) })
	}
}

// killBuyers runs buyers on a database until they have ended enough transactions, and kills each
// but the last.
func killBuyers(t *testing.T, url string) {
	kills, most := 4, 300
	if testserver.IsThorough() {
		kills, most = 40, 2000
	}
	ctx := testwait.Long(t)
	swarm, err := open.Open(ctx, url, open.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	db, err := openDatabase(url)
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE orders (id varchar(100) PRIMARY KEY)")
	}
	if err == nil {
		err = broker.Declare(ctx, swarm.Broker, broker.Queue{Name: router.DefaultQueue})
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	said := make(map[string]string) // id -> how its transaction ended
	processes := suite.NewProcesses(t, func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		end, id, _ := strings.Cut(line, " ")
		if said[id] = end; end != "committed" && end != "rolled-back" {
			t.Errorf("a buyer says %q", line)
		}
	}, memberDatabase+"="+url)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(said)
	}
	for i := range kills + 1 {
		p := processes.Start()
		testwait.Until(t, "enough transactions", func() bool { return count() >= most*(i+1)/(kills+1) || t.Failed() })
		if i == kills {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			break
		}
		<-time.After(rand.N(10 * time.Millisecond)) // at any step of a transaction
		p.Kill()
	}
	orders, tasks := ordersOf(ctx, t, db), tasksOf(ctx, t, swarm.Broker)
	if diff := cmp.Diff(orders, tasks); diff != "" {
		t.Errorf("the orders and their tasks differ (-orders +tasks):\n%s", diff)
	}
	for id, end := range said {
		if orders[id] != (end == "committed") {
			t.Errorf("%s is %s, and it is %v that it exists", id, end, orders[id])
		}
	}
	t.Logf("%d transactions have ended, %d have committed", len(said), len(orders))
	if err := errors.Join(db.Close(), swarm.Close(ctx)); err != nil {
		t.Error(err)
	}
}

// ordersOf returns the ids of the orders.
func ordersOf(ctx context.Context, t *testing.T, db *sql.DB) map[string]bool {
	t.Helper()
	rows, err := db.QueryContext(ctx, "SELECT id FROM orders")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		found[id] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	return found
}

// tasksOf receives all messages of the default queue and returns their ids. A message that comes
// twice fails the test.
func tasksOf(ctx context.Context, t *testing.T, b broker.Broker) map[string]bool {
	t.Helper()
	inspector, _ := capability.As[broker.Inspector](b)
	st, err := inspector.Stats(ctx, router.DefaultQueue)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Subscribe(ctx, router.DefaultQueue, broker.SubscribeOptions{Prefetch: 100})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for range st.Ready {
		d, err := s.Receive(ctx)
		if err == nil {
			err = d.Ack(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[d.Message().ID] {
			t.Errorf("%s came twice", d.Message().ID)
		}
		found[d.Message().ID] = true
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return found
}
