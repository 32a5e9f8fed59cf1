package sqljobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// keptKind is a way to relate jobs to each other, such as a sequence.
type keptKind struct {
	name string
	join func(j *jobstore.Row) // adds a job to the group
	spec func(spec *jobs.Spec) // the same for a spec
}

// keptKinds returns all kinds. Job 1 is the parent, which waits for another child.
func keptKinds() []keptKind {
	return []keptKind{
		{"sequence", func(j *jobstore.Row) { j.SequenceKey = "k" }, func(s *jobs.Spec) { s.SequenceKey = "k" }},
		{"unique key", func(j *jobstore.Row) { j.UniqueKey = "k" }, func(s *jobs.Spec) { s.UniqueKey = "k" }},
		{"key", func(j *jobstore.Row) { j.Key = "k" }, func(s *jobs.Spec) { s.Key = "k" }},
		{"parent", func(j *jobstore.Row) { j.Parent = 1 }, func(s *jobs.Spec) { s.Parent = 1 }},
		{"none", func(*jobstore.Row) {}, func(*jobs.Spec) {}},
	}
}

// keptJobs stores n finished jobs of one kind.
func keptJobs(t testing.TB, s *sqljobs.Store, n int, k keptKind) {
	t.Helper()
	parent, child := job("parent", 1, time.Now()), job("child", 1, time.Now().Add(time.Hour))
	parent.State, parent.HasChildren, parent.Due = jobstore.Paused, true, time.Time{}
	child.Parent = 1
	save(t, s, parent)
	for from := 0; from < n; from += 5000 {
		list := make([]*jobstore.Row, min(5000, n-from))
		for i := range list {
			j := job("work", 1, time.Now())
			j.State, j.Due, j.Key, j.Expires = jobstore.Finished, time.Time{}, fmt.Sprint("kept-", from+i), time.Now().Add(time.Hour)
			k.join(j)
			list[i] = j
		}
		save(t, s, list...)
	}
	save(t, s, child)
}

// oneOf creates a job of a kind and ends it.
func oneOf(ctx context.Context, s *jobs.Service, k keptKind, i int) error {
	spec := jobs.Spec{Name: "work", Key: fmt.Sprint("new-", i)}
	k.spec(&spec)
	made, err := s.Create(ctx, spec)
	if err != nil {
		return err
	}
	got, err := s.Get(ctx, jobs.Request{Selector: jobstore.Selector{Names: []string{"work"}}})
	if err != nil {
		return err
	}
	if got[0].ID != made.ID {
		return fmt.Errorf("job %d was handed out, not %d", got[0].ID, made.ID)
	}
	return s.Finish(ctx, jobs.Finish{ID: made.ID, Token: got[0].Token})
}

func serviceOf(t testing.TB, s jobs.Store) *jobs.Service {
	t.Helper()
	service, err := jobs.New(jobs.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return service
}

// manyKept returns the number of finished jobs that a test stores.
func manyKept() int {
	if testserver.IsThorough() {
		return 200_000
	}
	return 3000
}

// TestKeptJobsAreNotRead shows that finished jobs of a sequence, key or parent are not read. It
// creates and ends further jobs of the group, and answers their key.
func TestKeptJobsAreNotRead(t *testing.T) {
	for _, k := range keptKinds() {
		t.Run(k.name, func(t *testing.T) {
			dsn := postgresURL(t)
			filled, end := openAlone(t, dsn)
			keptJobs(t, filled, manyKept(), k)
			end()
			conn := watching(t, dsn)
			before := tuplesRead(t, conn)
			s, end := openAlone(t, dsn)
			service := serviceOf(t, s)
			const rounds = 10
			for i := range rounds {
				if err := oneOf(bound(t), service, k, i); err != nil {
					t.Fatal(err)
				}
				key := "new-0"
				if k.name == "key" {
					key = "k"
				}
				if r, err := service.Complete(bound(t), "work", key, 1); err != nil || r.Kind != jobs.Late {
					t.Fatalf("an answer for what is over: %+v, %v", r, err)
				}
			}
			if err := service.Close(bound(t)); err != nil {
				t.Fatal(err)
			}
			end()
			read := tuplesRead(t, conn) - before
			if read < 3*rounds {
				t.Errorf("%d rows were read: the server has not counted them", read)
			}
			if read > 30*rounds {
				t.Errorf("%d rows were read to create and end %d jobs beside %d that are over", read, rounds, manyKept())
			}
		})
	}
}

// BenchmarkKept creates and ends a job beside no finished jobs, and beside many of its kind.
func BenchmarkKept(b *testing.B) {
	for _, k := range keptKinds() {
		for _, n := range []int{0, 100_000} {
			b.Run(fmt.Sprint(k.name, "/", n), func(b *testing.B) {
				eachBench(b, func(b *testing.B, dsn string) {
					s := open(b, dsn)
					keptJobs(b, s, n, k)
					service := serviceOf(b, s)
					i := 0
					for b.Loop() {
						if err := oneOf(context.Background(), service, k, i); err != nil {
							b.Fatal(err)
						}
						i++
					}
				})
			})
		}
	}
}

// BenchmarkLateAnswer answers a key with many finished jobs.
func BenchmarkLateAnswer(b *testing.B) {
	eachBench(b, func(b *testing.B, dsn string) {
		s := open(b, dsn)
		keptJobs(b, s, 50_000, keptKinds()[2])
		service := serviceOf(b, s)
		for b.Loop() {
			if r, err := service.Complete(context.Background(), "work", "k", 1); err != nil || r.Kind != jobs.Late {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	})
}
