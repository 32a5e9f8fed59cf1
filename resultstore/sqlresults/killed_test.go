package sqlresults_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/task"
)

// childEnv makes the test binary a process that saves records in the database that it names.
const childEnv = "SQLRESULTS_TEST_CHILD"

// child saves records from eight goroutines until it is killed, and prints the id of each record
// whose Save returned.
func child() {
	db, err := sqltest.New(os.Getenv(childEnv))
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	s, err := sqlresults.New(sqlresults.Config{DB: db})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; ; i += 8 {
				r := done("", i)
				r.ID = task.ID(fmt.Sprintf("task-%d-%d", os.Getpid(), i))
				if err := s.Save(context.Background(), r); err != nil {
					fmt.Fprintln(os.Stdout, "error", err)
					return
				}
				fmt.Fprintln(os.Stdout, r.ID)
			}
		})
	}
	wg.Wait()
}

// Two processes that save records in one file are killed by SIGKILL. Every record whose Save
// returned can be loaded.
func TestKilled(t *testing.T) {
	dsn := fileURL(t)
	var wg sync.WaitGroup
	saved := make([][]string, 2)
	for i := range saved {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+dsn)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer stuck.Stop()
			for lines := bufio.NewScanner(out); lines.Scan(); {
				saved[i] = append(saved[i], lines.Text())
				if len(saved[i]) == 200 {
					_ = cmd.Process.Kill()
				}
			}
			_ = cmd.Wait()
		})
	}
	wg.Wait()
	s := opened(t, sqlresults.Config{DB: sqltest.Open(t, dsn)})
	for i, ids := range saved {
		if len(ids) < 200 {
			t.Fatalf("process %d saved %d records: %v", i, len(ids), ids)
		}
		for _, id := range ids[:len(ids)-1] { // the last line may be incomplete
			if _, err := s.Load(within(t, 20*time.Second), task.ID(id)); err != nil {
				t.Errorf("the record %s: %v", id, err)
			}
		}
	}
}
