package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// lockRow locks a row in the transaction of another program, by a statement with its key as $1.
func lockRow(ctx context.Context, t *testing.T, own sqltest.Transaction, statement string, key any) {
	t.Helper()
	if n, err := own.Tx.Exec(ctx, statement, key); err != nil || n != 1 {
		t.Fatalf("lock %v: %d rows, %v", key, n, err)
	}
}

const lockJob = "UPDATE swarmiji_jobs SET priority = priority WHERE id = $1"

// Another program that has locked a job delays the changes of this job only: the leases of other
// jobs are renewed, and other jobs accept their answers.
func TestLockedJob(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s := serviceOf(t, open(t, dsn))
	const n, locked = 8, 3
	for i := range n {
		if _, err := s.Create(ctx, jobs.Spec{Name: "n", Key: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.Get(ctx, jobs.Request{Selector: jobstore.Selector{Pattern: "n"}, Max: n, Lease: time.Hour})
	if err != nil || len(out) != n {
		t.Fatalf("%d claims, %v", len(out), err)
	}
	rows, answers := make([]*jobs.Row, n), make([]jobs.Answer, n)
	for i := range out {
		rows[i], answers[i] = &out[i].Row, jobs.Answer{Name: "n", Key: out[i].Key}
	}
	own := sqltest.Begin(t, dsn)
	lockRow(ctx, t, own, lockJob, int64(out[locked].ID))
	errs, _, err := s.RenewAll(ctx, rows, 12*time.Second)
	if err != nil {
		t.Fatalf("RenewAll: %v", err)
	}
	for i, err := range errs {
		if i != locked && err != nil || i == locked && !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("the renewal of job %d: %v", i, err)
		}
	}
	// A single change waits. The others share no transaction with it.
	waits := make(chan error, 1)
	go func() { waits <- s.Renew(ctx, out[locked].ID, 0, time.Hour) }()
	for i := range locked {
		if err := s.Renew(ctx, out[i].ID, 0, time.Hour); err != nil {
			t.Errorf("Renew of job %d: %v", i, err)
		}
	}
	receipts, err := s.AnswerAll(ctx, answers)
	if !errors.Is(err, jobs.ErrHeld) || len(receipts) != n {
		t.Fatalf("AnswerAll: %v, %v", receipts, err)
	}
	for i, r := range receipts {
		if want := map[bool]jobs.ReceiptKind{false: jobs.Accepted}[i == locked]; r.Kind != want {
			t.Errorf("answer %d is %q, not %q", i, r.Kind, want)
		}
	}
	finish(t, own.Rollback)
	if err := <-waits; err != nil {
		t.Errorf("Renew of the locked job: %v", err)
	}
	if receipts, err = s.AnswerAll(ctx, answers); err != nil || receipts[locked].Kind != jobs.Accepted || receipts[0].Kind != jobs.Duplicate {
		t.Errorf("AnswerAll: %v, %v", receipts, err)
	}
}

// Another program that has locked a deferral delays the answer to this task only.
func TestLockedDeferral(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s := serviceOf(t, open(t, dsn))
	d, err := deferrals.New(deferrals.Config{Jobs: s})
	if err != nil {
		t.Fatal(err)
	}
	const n = 4
	answers := make([]jobs.Answer, n)
	for i := range n {
		a := deferral.Attempt{Queue: "q", Name: "ask", Task: task.ID(fmt.Sprint("t", i)), State: []byte("{}")}
		if _, err := d.Defer(ctx, a, fmt.Sprint(i), time.Hour); err != nil {
			t.Fatal(err)
		}
		answers[i] = jobs.Answer{Name: "ask", Key: fmt.Sprint(i)}
	}
	own := sqltest.Begin(t, dsn)
	lockRow(ctx, t, own, "UPDATE swarmiji_deferral SET queue = queue WHERE task = $1", "t0")
	receipts, err := s.AnswerAll(ctx, answers)
	if !errors.Is(err, jobs.ErrHeld) || len(receipts) != n {
		t.Fatalf("AnswerAll: %v, %v", receipts, err)
	}
	for i, r := range receipts {
		if want := map[bool]jobs.ReceiptKind{false: jobs.Accepted}[i == 0]; r.Kind != want {
			t.Errorf("answer %d is %q, not %q", i, r.Kind, want)
		}
	}
	finish(t, own.Rollback)
	if receipts, err = s.AnswerAll(ctx, answers); err != nil || receipts[0].Kind != jobs.Accepted {
		t.Errorf("after the lock: %v, %v", receipts, err)
	}
}

// A transaction that locks all keys waits while a caller's transaction holds one of them. Meanwhile
// the others do not wait behind it for long.
func TestAllKeysBesideTransaction(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s := serviceOf(t, open(t, dsn))
	own := sqltest.Begin(t, dsn)
	createTx(ctx, t, s, own, jobs.Spec{Name: "n", Key: "a"})
	specs := make([]jobs.Spec, 600)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "n", Key: fmt.Sprint("many ", i)}
	}
	many := make(chan error, 1)
	go func() {
		_, err := s.CreateAll(ctx, specs)
		many <- err
	}()
	for i := range 600 { // behind waits of 2 s they would take longer than ctx allows
		if _, err := s.Create(ctx, jobs.Spec{Name: "n", Key: fmt.Sprint("other ", i)}); err != nil {
			t.Fatalf("Create number %d: %v", i, err)
		}
	}
	finish(t, own.Commit)
	if err := <-many; err != nil {
		t.Error(err)
	}
}

// Calls that wait for a key of a caller's transaction leave connections of the pool for others.
func TestWaitersBesideTransaction(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s := serviceOf(t, open(t, dsn))
	own := sqltest.Begin(t, dsn)
	createTx(ctx, t, s, own, jobs.Spec{Name: "n", UniqueKey: "a"})
	taken := make(chan error, 200)
	for range cap(taken) {
		go func() { taken <- second(s.Create(ctx, jobs.Spec{Name: "n", UniqueKey: "a"})) }()
	}
	for range 10 {
		// 200 waits of 2 s by 16 connections would be 25 s
		short, cancel := context.WithTimeout(ctx, 15*time.Second)
		if _, err := s.Create(short, jobs.Spec{Name: "plain"}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	finish(t, own.Commit)
	for range cap(taken) {
		if err := <-taken; !errors.As(err, new(*jobs.KeyTakenError)) {
			t.Errorf("Create with the key: %v, want a KeyTakenError", err)
		}
	}
}

// The first job of a name in a caller's transaction delays no other job of the name. This holds
// also after a sweep has removed the name since an earlier such job.
func TestSweptNameBesideTransaction(t *testing.T) {
	ctx, dsn := bound(t), postgresURL(t)
	s := serviceOf(t, open(t, dsn))
	own := sqltest.Begin(t, dsn)
	id := createTx(ctx, t, s, own, jobs.Spec{Name: "often"})
	finish(t, own.Commit)
	if err := s.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	conn := watching(t, dsn)
	for i, n := 0, int64(1); n > 0; i++ { // new names cause sweeps
		if _, err := s.Create(ctx, jobs.Spec{Name: fmt.Sprint("fresh ", i)}); err != nil {
			t.Fatal(err)
		}
		read(t, conn, "SELECT count(*) FROM swarmiji_job_name WHERE name = 'often'", &n)
	}
	own = sqltest.Begin(t, dsn)
	createTx(ctx, t, s, own, jobs.Spec{Name: "often"})
	short, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if _, err := s.Create(short, jobs.Spec{Name: "often"}); err != nil {
		t.Errorf("Create beside the transaction: %v", err)
	}
	finish(t, own.Commit)
}
