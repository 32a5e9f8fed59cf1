package bedrock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// holding is a store that calls hold before each transaction.
type holding struct {
	jobs.Store
	hold atomic.Pointer[func(ctx context.Context) error]
}

func (s *holding) before(ctx context.Context) error {
	if hold := s.hold.Load(); hold != nil {
		return (*hold)(ctx)
	}
	return nil
}

func (s *holding) Single(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Store.Single(ctx, fn)
}

func (s *holding) View(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Store.View(ctx, fn)
}

// holder serves jobs of a holding store.
func holder(t *testing.T, c Config) (*serving, *holding) {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	held := &holding{Store: store}
	c.Service = over(t, held)
	return serve(t, c), held
}

// TestListHeldInStore shows that a list that waits in the store stops no other client.
func TestListHeldInStore(t *testing.T) {
	s, store := holder(t, Config{})
	c := dial(t, s.addr)
	c.ask("CreateJob\nname: other\n\n").wantStatus(t, ok)
	c.ask("GetJob\nname: other\n\n").wantStatus(t, ok)
	var first atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	hold := func(context.Context) error {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	}
	store.hold.Store(&hold)
	defer close(release)
	// It needs as many units of work as one request may have.
	one := `{"name":"big","data":{"a":"` + strings.Repeat("x", 320) + `"}}`
	c.ask("CreateJobs\nConnection: forget\njobs: ["+strings.Repeat(one+",", maxJobs-1)+one+"]\n\n").wantStatus(t, statusQueued)
	select {
	case <-entered:
	case <-time.After(patience):
		t.Fatal("the list does not reach the store")
	}
	small := "CreateJobs\njobs: [" + strings.Repeat(`{"name":"small"},`, 99) + `{"name":"small"}]`
	large := `{"text":"` + strings.Repeat("x", 100<<10) + `"}`
	for _, c := range []struct{ text, want string }{
		{"GetJobs\nname: nothing\nnumResults: 4", statusNoJob},
		{"Query\nquery: select * from jobs where name='other'", ok},
		{"FinishJob\njobID: 1\ndata: " + large, ok},
		{"CreateJob\nname: single\ndata: " + large, ok},
		{small, ok},
	} {
		t.Run(strings.ReplaceAll(c.text[:min(len(c.text), 30)], "\n", " "), func(t *testing.T) {
			dial(t, s.addr).ask(c.text+"\ntimeout: 3000\n\n").wantStatus(t, c.want)
		})
	}
}

// TestReadsTogether shows that several clients read at the same time, whether jobs exist or not.
func TestReadsTogether(t *testing.T) {
	const clients = 8
	for name, text := range map[string]string{
		"GetJobs":          "GetJobs\nname: n%d\nnumResults: 4\n\n",
		"GetJobs, nothing": "GetJobs\nname: nothing%d\nnumResults: 4\n\n",
		"Query":            "Query\nquery: select * from jobs where name = 'n%d'\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, store := holder(t, Config{})
			for i := range clients {
				specs := make([]jobs.Spec, 4)
				for k := range specs {
					specs[k] = jobs.Spec{Name: fmt.Sprint("n", i)}
				}
				if _, err := s.c.Service.CreateAll(t.Context(), specs); err != nil {
					t.Fatal(err)
				}
			}
			var inside atomic.Int64
			all := make(chan struct{})
			hold := func(ctx context.Context) error {
				if inside.Add(1) == clients {
					close(all)
				}
				select {
				case <-all:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			store.hold.Store(&hold)
			waiting := make([]*client, clients)
			for i := range waiting {
				waiting[i] = dial(t, s.addr)
				waiting[i].send(fmt.Sprintf(text, i))
			}
			testwait.Until(t, fmt.Sprintf("all %d read at the same time", clients), func() bool { return inside.Load() >= clients })
			for _, c := range waiting {
				if got, want := strings.Count(c.next().Body, `{}`), 4; name != "GetJobs, nothing" && got != want {
					t.Errorf("got %d jobs, want %d", got, want)
				}
			}
		})
	}
}

// TestGivenUpFirst shows that GetJobs claims the due jobs behind one that RetryAfter gives up.
func TestGivenUpFirst(t *testing.T) {
	for name, wait := range map[string]string{"at once": "", "may wait": "Connection: wait\ntimeout: 2000\n"} {
		t.Run(name, func(t *testing.T) {
			s := jobsServer(t, Config{})
			first, err := s.c.Service.Create(t.Context(), jobs.Spec{Name: "foo", RetryAfter: "+1 SECOND"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.c.Service.Store().Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
				j, err := tx.Get(ctx, first.ID)
				if err != nil {
					return err
				}
				j.State, j.Handouts, j.Due = jobs.RunQueued, 10, j.Created
				return tx.Save(ctx, &j)
			}); err != nil {
				t.Fatal(err)
			}
			second, err := s.c.Service.Create(t.Context(), jobs.Spec{Name: "foo"})
			if err != nil {
				t.Fatal(err)
			}
			got := idsOf(t, dial(t, s.addr).ask("GetJobs\nname: foo\nnumResults: 1\n"+wait+"\n"))
			if len(got) != 1 || got[0] != second.ID {
				t.Errorf("got jobs %v, want job %d", got, second.ID)
			}
			wantState(t, s, first.ID, jobs.Failed)
		})
	}
}
