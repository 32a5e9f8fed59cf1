package bedrock

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// begun saves j as a queue's runner leaves it.
func begun(t *testing.T, s *jobs.Service, id jobs.ID, phase jobs.Phase) {
	t.Helper()
	err := s.Store().Update(t.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		j, err := tx.Get(ctx, id)
		if err != nil {
			return err
		}
		j.State, j.Phase, j.Run, j.Token, j.Attempt, j.LastRun = jobs.Running, phase, 1, 1, 1, j.NextRun
		return tx.Save(ctx, &j)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestQueueJobs shows that jobs of queues and jobs that await answers are visible to queries, but
// cannot be claimed. Early answers are not visible.
func TestQueueJobs(t *testing.T) {
	ctx, s := t.Context(), service(t)
	for _, spec := range []jobs.Spec{
		{Name: "q", Queue: "line", Data: []byte(`{"n":1}`)},
		{Name: "q", Queue: "line", Key: "k-2"},
		{Name: "q", Queue: "line", Key: "k-3"},
		{Name: "q", Queue: "line"},
		{Name: "q", Queue: "line", SequenceKey: "s"},
		{Name: "plain", Key: "k-6"},
	} {
		spec.Priority = task.Set(topPriority - defaultPriority)
		if _, err := s.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	// it gets no id
	if r, err := s.Complete(ctx, "q", "early", nil); err != nil || r.Kind != jobs.Early {
		t.Fatal(r, err)
	}
	begun(t, s, 2, jobs.Awaiting)
	begun(t, s, 3, jobs.Awaiting)
	begun(t, s, 4, "")
	if r, err := s.Complete(ctx, "q", "k-3", "paid"); err != nil || r.Kind != jobs.Accepted {
		t.Fatal(r, err)
	}
	c := dial(t, serve(t, Config{Service: s}).addr)
	plain := strings.Replace(gotFoo, `"jobID":1`, `"jobID":6`, 1)
	talk(t, c, []step{
		// Only jobs without a queue are claimed, whatever the name.
		{req("GetJob | name: q"), noJob},
		{req("GetJobs | name: * | numResults: 9"), ok + ` {"jobs":[` + strings.Replace(plain, `"foo"`, `"plain"`, 1) + `]}`},
		{req("GetJob | name: * | getMockedJobs: true"), noJob},
		{req("GetJob | name: q | Connection: wait | timeout: 1"), "303 Timeout"},

		{req("QueryJob | jobID: 1"), stored(1, "q", "QUEUED", `{"n":1}`)},
		{req("QueryJob | jobID: 2"), ran(2, "q", "RUNNING", `{}`)},
		{req("QueryJob | jobID: 3"), ran(3, "q", "FINISHED", `{}`)},
		{req("QueryJob | jobID: 5"), stored(5, "q", "QUEUED", `{}`)},
		{req("QueryJob | jobID: 7"), unknownJ},
		{req("UpdateJob | jobID: 7 | data: {}"), unknownJ},
		{req("FinishJob | jobID: 7"), unknownJ},
		{req("RetryJob | jobID: 7"), unknownJ},
		{req("FailJob | jobID: 7"), unknownJ},
		{req("DeleteJob | jobID: 7"), unknownJ},
		{req("CancelJob | jobID: 7"), unknownJ},
		{req("RequeueJobs | jobIDs: 7"), unknownJ},
		{req("CreateJob | name: c | parentJobID: 7"), "404 parentJobID does not exist"},
		{req("Query | query: select * from jobs where jobID=7"), `200 OK []`},
		{req("Query | query: select * from jobs where name='q';"), `200 OK [[T,1,"QUEUED","q",T,"","",{"n":1}],[T,2,"RUNNING","q",T,T,"",{}],` +
			`[T,3,"FINISHED","q",T,T,"",{}],[T,4,"RUNNING","q",T,T,"",{}],[T,5,"QUEUED","q",T,"","",{}]]`},

		// The commands work as for all jobs. The records of jobs with a queue or a key stay for a time
		// after their end.
		{req("UpdateJob | jobID: 1 | data: {\"n\":2}"), ok},
		{req("FinishJob | jobID: 1"), "405 Can only retry/finish RUNNING and RUNQUEUED jobs"},
		{req("FinishJob | jobID: 2"), ok},
		{req("QueryJob | jobID: 2"), ran(2, "q", "FINISHED", `{}`)},
		{req("FinishJob | jobID: 2"), "405 Can only retry/finish RUNNING and RUNQUEUED jobs"},
		{req("DeleteJob | jobID: 4"), "405 Can't delete a RUNNING job"},
		{req("FailJob | jobID: 4"), ok},
		{req("QueryJob | jobID: 4"), ran(4, "q", "FAILED", `{}`)},
		{req("RequeueJobs | jobIDs: 4"), ok},
		{req("QueryJob | jobID: 4"), ran(4, "q", "QUEUED", `{}`)},
		{req("GetJob | name: q"), noJob},
		{req("DeleteJob | jobID: 4"), ok},
		{req("CancelJob | jobID: 1"), "404 Invalid jobID - Cannot cancel a job without a parent"},
		{req("FinishJob | jobID: 6"), ok},
		{req("QueryJob | jobID: 6"), ran(6, "plain", "FINISHED", `{}`)},
		{req("CreateJob | name: c | parentJobID: 5"), "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"},
		{req("CreateJob | name: early | unique: true"), created(7)},
		{req("CreateJob | name: q | queue: line"), created(8)}, // not a header of this protocol
		{req("GetJob | name: q"), `/"jobID":8,`},
	})
	if r, err := s.Complete(ctx, "q", "k-2", nil); err != nil || !cmp.Equal(r, jobs.Receipt{Kind: jobs.Late, Job: 2}) {
		t.Errorf("after FinishJob an answer is %v, %v", r, err)
	}
}

// TestUniqueBesideEarly shows that a unique job does not match an early answer.
func TestUniqueBesideEarly(t *testing.T) {
	s := service(t)
	if _, err := s.Complete(t.Context(), "foo", "k", nil); err != nil {
		t.Fatal(err)
	}
	talk(t, dial(t, serve(t, Config{Service: s}).addr), []step{
		{req("CreateJob | name: foo | unique: true | data: {\"a\":1}"), created(1)},
		{req("CreateJob | name: foo | unique: true | data: {\"a\":2}"), created(1)},
		{req("QueryJob | jobID: 1"), stored(1, "foo", "QUEUED", `{"a":2}`)},
	})
}
