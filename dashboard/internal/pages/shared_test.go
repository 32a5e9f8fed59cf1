package pages

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
)

// slowAPI takes a time for its list of workers, whose timeouts count the reads.
type slowAPI struct {
	inspect.API
	takes time.Duration
	reads int
}

func (a *slowAPI) ListWorkers(context.Context, inspect.WorkerQuery) (inspect.WorkerPage, error) {
	a.reads++
	read := a.reads
	time.Sleep(a.takes)
	return inspect.WorkerPage{Workers: make([]inspect.Worker, read)}, nil
}

// TestSlowAnswersAreKept loads a page once a second for a minute. An answer that is read quickly is
// new each time. A slow one is read in a tenth of the time, or each five seconds, and no load waits
// for the second one. A load after a pause, or after a change, is given no old answer.
func TestSlowAnswersAreKept(t *testing.T) {
	for takes, most := range map[time.Duration]int{time.Millisecond: 60, 300 * time.Millisecond: 20, 2 * time.Second: 12} {
		synctest.Test(t, func(t *testing.T) {
			api := &slowAPI{takes: takes}
			s := newShared(api)
			load := func() (read int, waited time.Duration) {
				began := time.Now()
				page, err := s.ListWorkers(t.Context(), inspect.WorkerQuery{})
				if err != nil {
					t.Fatal(err)
				}
				return len(page.Workers), time.Since(began)
			}
			load()
			for range 60 {
				time.Sleep(time.Second)
				if _, waited := load(); takes > keep && waited > 0 {
					t.Errorf("a load waited %v for an answer that takes %v", waited, takes)
				}
			}
			synctest.Wait()
			if takes < keep/keepTimes && api.reads != 61 || api.reads > most+1 {
				t.Errorf("an answer that takes %v was read %d times", takes, api.reads)
			}
			time.Sleep(time.Minute)
			if read, _ := load(); read != api.reads {
				t.Errorf("takes %v: after a pause the answer is of read %d of %d", takes, read, api.reads)
			}
			s.forget()
			if read, waited := load(); read != api.reads || waited != takes {
				t.Errorf("takes %v: after a change the answer is of read %d of %d, after %v", takes, read, api.reads, waited)
			}
			if err := s.close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
