package sqljobs_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// TestModel holds the rules of jobs.Service, over these stores, to a model of them. Memory, where a command costs nothing, is tried with many more.
func TestModel(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		jobstest.Model(t, jobstest.ModelConfig{Open: func(t testing.TB) jobstore.Store { return open(t, dsn) }, Steps: 8})
	})
}

// TestCrowd has callers in each other's way, over two stores on one database.
func TestCrowd(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		jobstest.Crowd(t, jobstest.CrowdConfig{Open: func(t testing.TB) jobstore.Store { return open(t, dsn) }, Commands: 25})
	})
}
