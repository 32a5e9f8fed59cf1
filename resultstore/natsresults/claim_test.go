package natsresults_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
)

// TestClaimsOfACluster shows that with three servers a key has one holder. It also kills the
// stream's leader while many holders claim.
func TestClaimsOfACluster(t *testing.T) {
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	stores := make([]*natsresults.Store, len(c.Nodes))
	for i, n := range c.Nodes {
		stores[i] = open(t, natsresults.Config{Connect: natsconnect.Config{URLs: append([]string{n.URL()}, c.URLs()...)}, Replicas: 3})
	}
	const keys, holders = 60, 6
	claim := func(key, holder int) string {
		ctx := testwait.Long(t)
		for {
			winner, err := stores[holder%3].Claim(ctx, fmt.Sprint(key), fmt.Sprint(holder), time.Hour)
			if err == nil {
				return winner
			}
			if ctx.Err() != nil {
				t.Errorf("Claim: %v", err)
				return ""
			}
		}
	}
	claim(-1, 0) // the stream exists now
	var winners [keys][holders]string
	var wg sync.WaitGroup
	half := make(chan struct{})
	for h := range holders {
		wg.Go(func() {
			for k := range keys {
				if k == keys/2 && h == 0 {
					close(half)
				}
				winners[k][h] = claim(k, h)
			}
		})
	}
	<-half
	leader, err := c.Leader(testwait.Long(t), "SWJRESULTS_default")
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	wg.Wait()
	for k := range keys {
		for h, w := range winners[k] {
			if w != winners[k][0] {
				t.Errorf("key %d: holder %d was told %q, holder 0 %q", k, h, w, winners[k][0])
			}
			if now := claim(k, h); now != w {
				t.Errorf("key %d: now %q has it, %q was told before", k, now, w)
			}
		}
	}
}
