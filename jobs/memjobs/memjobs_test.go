package memjobs_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB) *memjobs.Store {
	t.Helper()
	s, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	jobstest.Run(t, func(t testing.TB) *jobstest.Harness {
		s := open(t)
		return &jobstest.Harness{
			Open:     func(testing.TB) jobs.Store { return s.Join() },
			Promises: jobstest.Promises{Take: true, Drop: true},
			Slack:    50 * time.Millisecond,
		}
	})
}
