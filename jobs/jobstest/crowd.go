package jobstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// CrowdConfig configures [Crowd].
type CrowdConfig struct {
	// Open connects to one database without jobs, like a further process. The caller closes the store.
	Open func(t testing.TB) jobs.Store
	// Services is the number of simulated processes. Default: 2.
	Services int
	// Clients is the number of callers per service. Default: 6.
	Clients int
	// Commands is the number of commands per caller. Default: 40.
	Commands int
}

// Crowd calls random commands concurrently on services over one database. The jobs have few names
// and keys, parents and children, so that callers conflict. Only errors of the rules may occur, no
// call may block forever, and each claim has its own token. At the end the invariants of all jobs
// must hold.
//
// Then the callers send requests, answer them, let them time out and withdraw jobs. Each job must
// end once, as the callers were told.
func Crowd(t *testing.T, c CrowdConfig) {
	t.Helper()
	c.Services, c.Clients, c.Commands = max(c.Services, 2), or(c.Clients, 6), or(c.Commands, 40)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cr := &crowd{TB: t, handed: map[string]bool{}}
	var wg sync.WaitGroup
	var services []*jobs.Service
	for i := range c.Services {
		s, err := jobs.New(jobs.Config{Store: c.Open(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		services = append(services, s)
		for k := range c.Clients {
			r := rand.New(rand.NewPCG(seed, uint64(i*1000+k)))
			wg.Go(func() {
				for range c.Commands {
					if !cr.command(ctx, s, r) {
						return
					}
				}
			})
		}
	}
	wg.Wait()
	list, err := services[0].Rows(ctx, jobs.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lawful(list), lawfulKeys(list)); err != nil {
		t.Error(err)
	}
	t.Logf("%d jobs were handed out, %d are left", len(cr.handed), len(list))
	if len(cr.handed) < c.Services*c.Clients {
		t.Errorf("only %d jobs were handed out", len(cr.handed))
	}
	correspond(ctx, t, c, seed, services)
}

// or returns n, or other if n is 0.
func or(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}

// crowd is the first part of one Crowd: random commands, the highest known id, and the claims so
// far. Safe for concurrent use.
type crowd struct {
	testing.TB
	last atomic.Int64 // the highest known id

	mu     sync.Mutex
	handed map[string]bool // by job and token
}

// pick draws one of the 30 ids up to the highest known id, but at least 1. No job may have it.
func (c *crowd) pick(r *rand.Rand) jobs.ID {
	last := c.last.Load()
	return jobs.ID(max(1, last-r.Int64N(30)))
}

// command calls one random command on s (give) and returns true if its error is nil or an error of
// the rules. Any other error fails the test, which continues, and it returns false.
func (c *crowd) command(ctx context.Context, s *jobs.Service, r *rand.Rand) bool {
	what, err := c.give(ctx, s, r)
	for _, known := range []error{nil, jobs.ErrNotFound, jobs.ErrNoJob, jobs.ErrBadJob, jobs.ErrState, jobs.ErrStale} {
		if errors.Is(err, known) {
			return true
		}
	}
	c.Errorf("%s: %v", what, err)
	return false
}

// give draws one command with r and calls it on s. It returns the name of the command and its
// error.
func (c *crowd) give(ctx context.Context, s *jobs.Service, r *rand.Rand) (what string, err error) {
	switch r.IntN(16) {
	case 0, 1, 2:
		return "create", c.create(ctx, s, r)
	case 3, 4, 5:
		return "a life", c.live(ctx, s, r)
	case 6:
		return "delete", s.Delete(ctx, c.pick(r))
	case 7:
		return "cancel", s.Cancel(ctx, c.pick(r))
	case 8:
		return "requeue", s.Requeue(ctx, []jobs.ID{c.pick(r), c.pick(r), c.pick(r)}, "")
	case 9:
		return "update", s.Update(ctx, jobs.Update{ID: c.pick(r), Data: []byte(`{"u":1}`)})
	case 10:
		return "finish", s.Finish(ctx, jobs.Finish{ID: c.pick(r)})
	case 11, 12:
		return "answer", c.answer(ctx, s, r)
	case 13:
		return "withdraw", s.Withdraw(ctx, c.pick(r))
	case 14:
		_, err := s.Await(ctx, jobs.Await{ID: c.pick(r), Key: crowdKey(r)})
		return "await", err
	default:
		return "fail", s.Fail(ctx, jobs.Fail{ID: c.pick(r)})
	}
}

// create creates one to three random jobs in one call, and raises c.last to their highest id.
// Returns the error of CreateAll.
func (c *crowd) create(ctx context.Context, s *jobs.Service, r *rand.Rand) error {
	specs := make([]jobs.Spec, 1+r.IntN(3))
	for i := range specs {
		spec := jobs.Spec{Name: []string{"a", "b", "c"}[r.IntN(3)], Data: fmt.Appendf(nil, `{"n":%d}`, r.IntN(3))}
		switch r.IntN(5) {
		case 0:
			spec.SequenceKey = []string{"k", "l"}[r.IntN(2)]
		case 1:
			spec.Parent = c.pick(r)
		case 2:
			spec.Unique = true
		case 3:
			spec.RetryAfter = "+1 HOUR"
		}
		if !spec.Unique && r.IntN(3) == 0 {
			spec.Key, spec.Respond = crowdKey(r), r.IntN(2) == 0
		}
		if !spec.Unique && r.IntN(6) == 0 {
			spec.UniqueKey = crowdKey(r)
		}
		specs[i] = spec
	}
	made, err := s.CreateAll(ctx, specs)
	for _, m := range made {
		for last := c.last.Load(); int64(m.ID) > last && !c.last.CompareAndSwap(last, int64(m.ID)); last = c.last.Load() {
		}
	}
	return err
}

// live claims up to three jobs, records the claims (seen), and ends each job in a random way.
// Returns the error of the claim, or the first error of an end.
func (c *crowd) live(ctx context.Context, s *jobs.Service, r *rand.Rand) error {
	got, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: []string{"*", "a", "[bc]"}[r.IntN(3)]}, Max: 1 + r.IntN(3)})
	if err != nil {
		return err
	}
	for _, h := range got {
		c.seen(h)
	}
	for _, h := range got {
		switch r.IntN(8) {
		case 0:
			err = s.Retry(ctx, jobs.Retry{ID: h.ID, Token: h.Token})
		case 1:
			err = s.Fail(ctx, jobs.Fail{ID: h.ID, Token: h.Token})
		case 2:
			_, err = s.CreateAll(ctx, []jobs.Spec{{Name: "child", Parent: h.ID}, {Name: "a", Parent: h.ID}})
			err = errors.Join(err, s.Finish(ctx, jobs.Finish{ID: h.ID, Token: h.Token}))
		case 3:
			err = s.GiveBack(ctx, h)
		case 4, 5:
			err = s.Expect(ctx, jobs.Expect{ID: h.ID, Token: h.Token, Key: crowdKey(r)})
			if err == nil {
				_, err = s.Await(ctx, jobs.Await{ID: h.ID, Token: h.Token})
			}
		default:
			err = s.Finish(ctx, jobs.Finish{ID: h.ID, Token: h.Token})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// seen records the claim h. It fails the test if h has the token of an earlier claim of the job. It
// ignores a job with GivenUp, which was not claimed. It takes c.mu.
func (c *crowd) seen(h jobs.Handout) {
	if h.GivenUp {
		return
	}
	key := fmt.Sprint(h.ID, "/", h.Token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handed[key] {
		c.Errorf("job %d was handed out twice with token %d", h.ID, h.Token)
	}
	c.handed[key] = true
}
