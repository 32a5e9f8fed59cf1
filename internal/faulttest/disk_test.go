package faulttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// fullTime is the time for which the disk stays full. Meanwhile consumers repeat their settlements.
const fullTime = 5 * time.Second

// TestFullDiskLosesNothingConfirmed fills the disk of a database under load. Submissions that need
// space return an error that says what to do. Nothing that was confirmed is lost, nothing that was
// refused runs, and work continues when there is space again.
func TestFullDiskLosesNothingConfirmed(t *testing.T) {
	testserver.Thorough(t)
	for name, start := range map[string]func(t *testing.T) (d *testserver.Disk, url string, revive func()){
		"sqlite":   fileOnDisk,
		"postgres": postgresOnDisk,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, url, revive := start(t)
			f := newFleet(t, url)
			set := settings{"TASK_MS": 10, "LEASE_MS": shortLease.Milliseconds(), "RESULTS": 1}
			consumers := []*program{f.consumer(set), f.consumer(set)}
			p := f.producer(settings{"RATE": 100, "CONCURRENCY": 16, "RESULTS": 1})
			submit := f.ballast()
			f.await("load", atLeast(200, ledger.Finished))
			if err := disk.Fill(); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "a submission is refused because the disk is full", func() bool {
				err := submit()
				if err == nil || !errors.Is(err, broker.ErrBlocked) {
					return false
				}
				t.Log(err)
				if !strings.Contains(err.Error(), "free space on its disk") {
					t.Errorf("the error does not say what to do: %v", err)
				}
				return true
			})
			full := time.Now()
			f.await("the disk is full for a while", func(ledger.History) bool { return time.Since(full) > fullTime })
			if err := disk.Free(); err != nil {
				t.Fatal(err)
			}
			revive()
			up := time.Now()
			f.awaitWithin(recovery, "a task started after there was space again", startedAfter(up))
			recovered := time.Now().Add(recovery)
			f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+200, ledger.Finished))
			if err := submit(); err != nil {
				t.Errorf("with space again: %v", err)
			}
			p.terminate()
			f.await("all confirmed tasks finished", nothingLost)
			f.drain(consumers...)
			f.check(ledger.NoLoss, ledger.NoGhosts, ledger.Results, ledger.RepeatsOnlyOf(submittedBefore(f.history(), recovered)))
			f.awaitEmpty(f.connect(f.url).Broker)
			t.Logf("%d submissions were refused", len(f.history().Tasks(ledger.Failed)))
		})
	}
}

// ballast returns a function that submits a large task to another queue of the fleet's broker,
// which no consumer serves.
func (f *fleet) ballast() func() error {
	f.t.Helper()
	b := f.connect(f.url).Broker
	if err := broker.Declare(f.t.Context(), b, broker.Queue{Name: f.queue + "-ballast"}); err != nil {
		f.t.Fatal(err)
	}
	p, err := producer.New(producer.Config{Broker: b, Router: router.Static(f.queue + "-ballast"), Logger: quiet()})
	if err != nil {
		f.t.Fatal(err)
	}
	large := task.New[[]byte, task.None]("soak.ballast", task.WithIgnoreResult(true))
	return func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), patience)
		defer cancel()
		_, err := large.Submit(ctx, p, make([]byte, 64<<10))
		return err
	}
}

func fileOnDisk(t *testing.T) (d *testserver.Disk, url string, revive func()) {
	d = testserver.OwnDisk(t, 32<<20)
	return d, "sqlite://" + d.Dir() + "/app.db", func() {}
}

// postgresOnDisk returns a server whose log of changes fills its disk last. If it ends because it
// cannot write that log, revive starts it again, as a service manager does.
func postgresOnDisk(t *testing.T) (d *testserver.Disk, url string, revive func()) {
	d = testserver.OwnDisk(t, 192<<20)
	node := testserver.OwnPostgres(t, testserver.PostgresConfig{Disk: d, Conf: "min_wal_size = 32MB\nmax_wal_size = 64MB"})
	return d, node.URL(), func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := node.Exec(ctx, "postgres", "SELECT 1"); err != nil {
			t.Logf("the server is started again: %v", err)
			if err := node.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
