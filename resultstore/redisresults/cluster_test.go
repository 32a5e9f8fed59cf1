package redisresults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore/resultstoretest"
	"github.com/swarmiji/swarmiji/task"
)

// TestCluster runs the suite on a cluster: its nodes share the records, and each node notifies the
// submitter.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	o := &redis.UniversalOptions{Addrs: cluster.Addrs(), Username: cluster.User(), Password: cluster.Password()}
	resultstoretest.Run(t, func(testing.TB) *resultstoretest.Harness { return harnessOf(o) })
	t.Run("many at a time, and SCRIPT FLUSH", func(t *testing.T) {
		s := open(t, o, "many")
		n := notify(t, s, "node")
		const each = 300
		for round := range 3 {
			errs := make(chan error, each)
			for i := range each {
				go func() { errs <- s.Save(testwait.Long(t), done("node", round*each+i)) }()
			}
			for range each {
				if err := <-errs; err != nil {
					t.Fatalf("Save: %v", err)
				}
			}
			missing := map[task.ID]bool{}
			for i := range each {
				missing[done("node", round*each+i).ID] = true
			}
			for len(missing) > 0 {
				r, err := n.Receive(testwait.Long(t))
				if err != nil {
					t.Fatalf("Receive with %d records missing: %v", len(missing), err)
				}
				delete(missing, r.ID)
			}
			for _, node := range cluster.Nodes {
				do(t, node, "SCRIPT", "FLUSH")
			}
		}
		for i, node := range cluster.Nodes {
			if keys := do(t, node, "DBSIZE").(int64); keys < 3*each/10 {
				t.Errorf("node %d holds %d keys: they do not spread", i, keys)
			}
		}
	})
}

// A dead or silent node delays only its own records.
func TestClusterWithoutANode(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) { clusterWithoutANode(t, silent) })
	}
}

func clusterWithoutANode(t *testing.T, silent bool) {
	cluster := testserver.OwnRedisCluster(t, testserver.RedisConfig{Conf: "cluster-require-full-coverage no"})
	s := open(t, &redis.UniversalOptions{Addrs: cluster.Addrs(), Username: cluster.User(), Password: cluster.Password()}, "away")
	owner := func(i int) int {
		n, err := cluster.Owner(testwait.Long(t), fmt.Sprintf("swj:res:{away.task-%d}", i))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	owners := make([]int, 60)
	for i := range owners {
		owners[i] = owner(i)
	}
	gone := owners[0]
	save(t, s, done("", 0))
	if silent {
		cluster.Nodes[gone].Pause()
	} else {
		cluster.KillNode(gone)
	}
	here, there := make(chan error, len(owners)), make(chan error, len(owners))
	hereN, thereN := 0, 0
	for i, o := range owners[1:] {
		i++
		if o == gone {
			thereN++
			go func() { there <- s.Save(testwait.Long(t), done("", i)) }()
		} else {
			hereN++
			go func() { here <- s.Save(testwait.Long(t), done("", i)) }()
		}
	}
	for range hereN {
		if err := <-here; err != nil {
			t.Errorf("Save on a node that is there: %v", err)
		}
	}
	for i, o := range owners { // one at a time, in less time than a batch waits for an answer
		if o == gone {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if err := s.Save(ctx, done("", i)); err != nil {
			t.Errorf("Save on a node that is there, after those on the one that is not: %v", err)
		}
		cancel()
	}
	if len(there) > 0 {
		t.Errorf("Save on a node that is gone returned %v", <-there)
		thereN--
	}
	if silent {
		cluster.Nodes[gone].Resume()
	} else if err := cluster.RestartNode(testwait.Long(t), gone); err != nil {
		t.Fatal(err)
	}
	for range thereN {
		if err := <-there; err != nil {
			t.Errorf("Save on a node that came back: %v", err)
		}
	}
	for i := range owners {
		wantRecord(t, s, done("", i))
	}
}
