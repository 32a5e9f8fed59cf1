package faulttest

import (
	"net/url"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// confirmedBetween reports whether a task was confirmed between two times.
func confirmedBetween(task *ledger.Task, from, to time.Time) bool {
	for _, l := range task.Lines {
		if l.Event == ledger.Confirmed && l.At.After(from) && l.At.Before(to) {
			return true
		}
	}
	return false
}

// Redis confirms before a replica has the task. At a promotion exactly the tasks that the replica
// lacks are lost, and the ledger shows it.
func TestRedisFailoverLosesOnlyWhatTheReplicaLacked(t *testing.T) {
	t.Parallel()
	pair := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	line := testserver.NewRelay(t, pair.Primary.Addr())
	f := newFleet(t, line.URL(pair.Primary.URL()))
	p := f.producer(settings{"RATE": 200, "CONCURRENCY": 8})
	f.await("some tasks confirmed", atLeast(100, ledger.Confirmed))
	cut := time.Now()
	must(t, pair.Sync(t.Context()))
	must(t, pair.Cut(t.Context()))
	apart := time.Now()
	f.await("tasks confirmed that the replica lacks", func(h ledger.History) bool {
		n := 0
		for _, task := range h.Tasks(ledger.Confirmed) {
			if confirmedBetween(task, apart, time.Now()) {
				n++
			}
		}
		return n >= 50
	})
	pair.Primary.Kill()
	must(t, pair.Promote(t.Context()))
	promoted := time.Now()
	line.Redirect(pair.Replica.Addr())
	f.await("load again", atLeast(len(f.history().Tasks(ledger.Confirmed))+100, ledger.Confirmed))
	p.terminate()

	c := f.consumer(settings{"CONCURRENCY": 8, "LEASE_MS": shortLease.Milliseconds()})
	f.drain(c)
	f.check(ledger.NoGhosts, ledger.NoRepeat)
	lost := f.history().Check(ledger.NoLoss)
	t.Logf("%d confirmed tasks were lost", len(lost))
	if len(lost) < 50 {
		t.Errorf("the ledger tells of %d lost tasks; the replica lacked 50 or more", len(lost))
	}
	for _, v := range lost {
		if !confirmedBetween(v.Task, cut, promoted) {
			t.Errorf("%v; the replica had it", v)
		}
	}
}

// With wait_replicas a task is confirmed when the replica has it: the same failover loses no task.
func TestRedisFailoverWithWaitLosesNothing(t *testing.T) {
	t.Parallel()
	pair := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	line := testserver.NewRelay(t, pair.Primary.Addr())
	f := newFleet(t, line.URL(pair.Primary.URL())+"?wait_replicas=1")
	c := f.consumer(settings{"TASK_MS": 10, "LEASE_MS": shortLease.Milliseconds()})
	p := f.producer(settings{"RATE": 100, "CONCURRENCY": 16})
	f.await("load", atLeast(100, ledger.Finished))
	must(t, pair.Cut(t.Context()))
	cut := time.Now()
	f.await("tasks submitted that are not confirmed", func(h ledger.History) bool {
		return time.Since(cut) > 2*time.Second && len(h.Lacking(ledger.Submitted, ledger.Confirmed)) >= 10
	})
	for _, task := range f.history().Tasks(ledger.Confirmed) {
		if confirmedBetween(task, cut.Add(500*time.Millisecond), time.Now()) {
			t.Errorf("%v: confirmed although no replica can have it", task)
		}
	}
	pair.Primary.Kill()
	must(t, pair.Promote(t.Context()))
	line.Redirect(pair.Replica.Addr())
	must(t, pair.Primary.Restart(t.Context()))
	must(t, pair.Demote(t.Context()))
	f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	p.terminate()
	f.await("all confirmed tasks finished", nothingLost)
	f.drain(c)
	f.check(ledger.NoLoss, ledger.NoGhosts)
	f.awaitEmpty(f.connect(f.url).Broker)
}

// A sentinel promotes the replica when the primary dies. Producers and consumers connect to the new
// primary. Tasks confirmed in the last moments may be lost.
func TestRedisSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	s := testserver.OwnRedisSentinel(t, testserver.RedisConfig{})
	u := url.URL{
		Scheme: "redis-sentinel", User: url.UserPassword(s.Primary.User(), s.Primary.Password()), Host: s.Sentinel.Addr(), Path: "/" + s.MasterName(),
		RawQuery: url.Values{"sentinel_user": {s.Sentinel.User()}, "sentinel_password": {s.Sentinel.Password()}}.Encode(),
	}
	f := newFleet(t, u.String())
	c := f.consumer(settings{"TASK_MS": 10, "LEASE_MS": shortLease.Milliseconds()})
	p := f.producer(settings{"RATE": 100, "CONCURRENCY": 16})
	f.await("load", atLeast(100, ledger.Finished))
	s.Primary.Kill()
	killed := time.Now()
	f.awaitWithin(2*recovery, "a task submitted and started after the primary was killed", func(h ledger.History) bool {
		for _, task := range h.Tasks(ledger.Started) {
			if task.Lines[0].At.After(killed) {
				return true
			}
		}
		return false
	})
	f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
	p.terminate()
	f.drain(c)
	f.check(ledger.NoGhosts)
	lost := f.history().Check(ledger.NoLoss)
	t.Logf("%d confirmed tasks were lost", len(lost))
	for _, v := range lost {
		if !confirmedBetween(v.Task, killed.Add(-time.Second), killed.Add(time.Second)) {
			t.Errorf("%v; it was confirmed long before the primary was killed, or by its successor", v)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
