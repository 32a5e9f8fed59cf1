package sqljobs_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestModel compares jobs.Service on these stores with a model of its rules. The test of the store
// in memory, where a command costs little, runs many more steps.
func TestModel(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		jobstest.Model(t, jobstest.ModelConfig{Open: func(t testing.TB) jobstore.Store { return open(t, dsn) }, Steps: 12})
	})
}

// TestCrowd runs conflicting commands of many callers over two stores on one database.
func TestCrowd(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		jobstest.Crowd(t, jobstest.CrowdConfig{Open: func(t testing.TB) jobstore.Store { return open(t, dsn) }, Commands: 25})
	})
}
