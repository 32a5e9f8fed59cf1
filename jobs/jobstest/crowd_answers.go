package jobstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// crowdKey draws one of three keys.
func crowdKey(r *rand.Rand) string { return []string{"x", "y", "z"}[r.IntN(3)] }

// answer gives an answer, or a refusal in one of three cases, for a random name and key. Returns
// the error of the service.
func (c *crowd) answer(ctx context.Context, s *jobs.Service, r *rand.Rand) error {
	name, key := []string{"a", "b", "c"}[r.IntN(3)], crowdKey(r)
	if r.IntN(3) == 0 {
		_, err := s.Reject(ctx, name, key, errors.New("refused"))
		return err
	}
	_, err := s.Complete(ctx, name, key, 1)
	return err
}

// posts is the second part of one Crowd: jobs with keys that send requests, and the results that
// callers received. mu protects all maps and late.
type posts struct {
	testing.TB
	mu       sync.Mutex
	made     map[jobs.ID]bool
	accepted map[jobs.ID][]string // accepted answers, as they were sent
	refused  map[jobs.ID]int
	// ends that were not answers; a second withdrawal reports the first one's end
	ended map[jobs.ID]map[string]int
	late  int
}

// correspondKeys is the number of keys. It is small, so that callers use the same keys.
const correspondKeys = 7

// correspond lets Clients callers per service call Commands random commands each, concurrently:
// they create jobs with few keys, send requests, answer, withdraw and purge (posts.command). An
// unexpected error fails the test. At the end posts.check compares the stored jobs with the
// results.
func correspond(ctx context.Context, t testing.TB, c CrowdConfig, seed uint64, services []*jobs.Service) {
	t.Helper()
	p := &posts{TB: t, made: map[jobs.ID]bool{}, accepted: map[jobs.ID][]string{}, refused: map[jobs.ID]int{}, ended: map[jobs.ID]map[string]int{}}
	var wg sync.WaitGroup
	for i, s := range services {
		for k := range c.Clients {
			r := rand.New(rand.NewPCG(seed, uint64(1_000_000+i*1000+k)))
			wg.Go(func() {
				for n := range c.Commands {
					if err := p.command(ctx, s, r, i*1_000_000+k*10_000+n); err != nil {
						p.Errorf("%v", err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	p.check(ctx, services[0])
}

// note calls fn with p.mu held.
func (p *posts) note(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

// command calls one random command on s and records its result. number becomes the answer, so that
// all answers differ. Returns nil for an error of the rules, and any other error.
func (p *posts) command(ctx context.Context, s *jobs.Service, r *rand.Rand, number int) error {
	key := "key-" + strconv.Itoa(r.IntN(correspondKeys))
	var err error
	switch what := r.IntN(10); what {
	case 0, 1, 2:
		var made jobs.Created
		if made, err = s.Create(ctx, jobs.Spec{Name: "post", Key: key, Respond: r.IntN(3) == 0}); err == nil {
			p.note(func() { p.made[made.ID] = true })
		}
	case 3, 4:
		err = p.run(ctx, s, r)
	case 5, 6, 7:
		answers := []jobs.Answer{{Name: "post", Key: key, Result: strconv.AppendInt(nil, int64(number), 10)}}
		if what == 7 { // several answers in one call, two of them equal
			answers = append(answers, answers[0], jobs.Answer{Name: "post", Key: "key-0", Refusal: "no"})
		}
		var got []jobs.Receipt
		got, err = s.AnswerAll(ctx, answers)
		for i := range got {
			p.note(func() { p.received(answers[i], got[i]) })
		}
	case 8:
		err = p.withdraw(ctx, s, key)
	default:
		_, err = s.Purge(ctx)
	}
	for _, known := range []error{nil, jobs.ErrNotFound, jobs.ErrNoJob, jobs.ErrState, jobs.ErrStale} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}

// count adds one to the ends of this kind of a job. Call it with p.mu held.
func (p *posts) count(id jobs.ID, end string) {
	if p.ended[id] == nil {
		p.ended[id] = map[string]int{}
	}
	p.ended[id][end]++
}

// received records the receipt r of the answer a: an accepted answer or refusal by its job, a late
// or repeated answer in p.late. Call it with p.mu held.
func (p *posts) received(a jobs.Answer, r jobs.Receipt) {
	switch {
	case r.Kind == jobs.Accepted && a.Refusal != "":
		p.refused[r.Job]++
	case r.Kind == jobs.Accepted:
		p.accepted[r.Job] = append(p.accepted[r.Job], string(a.Result))
	case r.Kind == jobs.Late, r.Kind == jobs.Duplicate:
		p.late++
	}
}

// run claims up to two jobs and takes the next step of each. A job without an answer awaits it for
// a random time below 50 ms. An answered job is finished. A refused or timed out job is retried or
// failed. It records failures. Returns the error of the claim, and any error of a step except
// ErrStale.
func (p *posts) run(ctx context.Context, s *jobs.Service, r *rand.Rand) error {
	got, err := s.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{"post"}}, Max: 2, Lease: time.Minute})
	if err != nil {
		return err
	}
	for _, h := range got {
		switch {
		case h.Phase == "":
			_, err = s.Await(ctx, jobs.Await{ID: h.ID, Token: h.Token, Timeout: task.Set(time.Duration(r.IntN(50)) * time.Millisecond)})
		case h.Phase == jobs.Answered && h.Answer != nil:
			err = s.Finish(ctx, jobs.Finish{ID: h.ID, Token: h.Token})
		case r.IntN(2) == 0: // refused or timed out
			err = s.Retry(ctx, jobs.Retry{ID: h.ID, Token: h.Token})
		default:
			if err = s.Fail(ctx, jobs.Fail{ID: h.ID, Token: h.Token, Reason: "no"}); err == nil {
				p.note(func() { p.count(h.ID, "failed") })
			}
		}
		if err != nil && !errors.Is(err, jobs.ErrStale) {
			return fmt.Errorf("job %d, %s: %w", h.ID, h.Phase, err)
		}
	}
	return nil
}

// withdraw withdraws the oldest open job with a key, if one exists, and records that. Returns the
// errors of List and Withdraw.
func (p *posts) withdraw(ctx context.Context, s *jobs.Service, key string) error {
	found, err := s.List(ctx, jobs.Filter{Name: "post", Key: key, States: []jobs.State{jobs.Queued, jobs.Running}})
	if err != nil || len(found) == 0 {
		return err
	}
	if err = s.Withdraw(ctx, found[0].ID); err == nil {
		p.note(func() { p.count(found[0].ID, "withdrawn") })
	}
	return err
}

// check compares all stored jobs with the recorded results (checkOne). It fails the test for each
// lost or unknown job, and for a broken rule (lawfulKeys). It also fails if no job ended, or if no
// answer was accepted or late.
func (p *posts) check(ctx context.Context, s *jobs.Service) {
	p.Helper()
	list, err := s.Rows(ctx, jobs.Filter{Name: "post"})
	if err != nil {
		p.Fatal(err)
	}
	if err := lawfulKeys(list); err != nil {
		p.Error(err)
	}
	there := map[jobs.ID]*jobs.Row{}
	ends := 0
	for i := range list {
		j := &list[i]
		there[j.ID] = j
		if !p.made[j.ID] {
			p.Errorf("nobody has made job %d", j.ID)
		}
		if j.State.Over() {
			ends++
		}
		p.checkOne(j)
	}
	for id := range p.made {
		if there[id] == nil {
			p.Errorf("job %d is lost", id)
		}
	}
	p.Logf("%d jobs, %d of them over, %d with an answer; %d answers were late or came twice", len(p.made), ends, len(p.accepted), p.late)
	if ends == 0 || len(p.accepted) == 0 || p.late == 0 {
		p.Error("too little has happened")
	}
}

// checkOne fails the test if the stored job j contradicts the recorded results. A job accepts at
// most one answer and has at most one other end. A FINISHED job has an answer and no other end. An
// accepted answer is stored in its job, unless the job was withdrawn. A FAILED job has one end and
// no answer.
func (p *posts) checkOne(j *jobs.Row) {
	answers, ends := p.accepted[j.ID], p.ended[j.ID]["failed"]
	if p.ended[j.ID]["withdrawn"] > 0 {
		ends++
	}
	switch {
	case len(answers) > 1:
		p.Errorf("job %d has accepted the answers %v", j.ID, answers)
	case ends > 1:
		p.Errorf("job %d has ended %d times", j.ID, ends)
	case j.State == jobs.Finished && (ends > 0 || j.Answer == nil):
		p.Errorf("job %d is FINISHED, with the answer %q, and was ended otherwise %d times", j.ID, j.Answer, ends)
	case len(answers) == 1 && string(j.Answer) != answers[0]:
		if ends != 1 || j.State != jobs.Cancelled {
			p.Errorf("job %d is %s with the answer %q, not %s, which was accepted", j.ID, j.State, j.Answer, answers[0])
		}
	case j.State == jobs.Failed && (ends != 1 || len(answers) > 0):
		p.Errorf("job %d has FAILED, by %d ends and after %d answers", j.ID, ends, len(answers))
	}
}
