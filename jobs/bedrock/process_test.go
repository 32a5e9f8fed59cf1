package bedrock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// The environment variables of a server process: its database file and its address.
const (
	envFile   = "BEDROCK_TEST_FILE"
	envAddr   = "BEDROCK_TEST_ADDR"
	envMemory = "BEDROCK_TEST_MEMORY" // MaxMemory; "": the default
)

// lite returns a store in a file.
func lite(file string) (jobs.Store, error) {
	db, err := sqltest.New("sqlite://" + file)
	if err != nil {
		return nil, err
	}
	return sqljobs.New(sqljobs.Config{DB: db})
}

// liteOf is lite for a test, which closes the file at its end.
func liteOf(t *testing.T, file string) jobs.Store {
	t.Helper()
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, "sqlite://"+file)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// serveFile runs a server in a process of its own. It prints a line when it listens. To each line
// of input it answers with the memory that Go has obtained from the system. It ends with its input.
func serveFile(file, addr string) error {
	store, err := lite(file)
	if err != nil {
		return err
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		return err
	}
	memory, _ := strconv.ParseInt(os.Getenv(envMemory), 10, 64)
	s, err := New(Config{Service: service, Listen: addr, MaxMemory: memory})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // it also ends with the test
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			_, _ = fmt.Fprintln(os.Stdout, m.Sys)
		}
		cancel()
	}()
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, ln.Addr()); err != nil {
		return err
	}
	err = s.Serve(ctx, ln)
	return errors.Join(err, service.Close(context.Background()), store.Close(context.Background()))
}

// child is a server in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	addr  string
}

func startChild(t *testing.T, file, addr string, env ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), envFile+"="+file, envAddr+"="+addr), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("the server did not start: %v, %v", err, cmd.Wait())
	}
	return &child{cmd: cmd, stdin: stdin, out: out, addr: strings.TrimSpace(line)}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// ledger contains the knowledge of the clients.
type ledger struct {
	mu       sync.Mutex
	tried    map[string]bool    // marks of jobs whose creation was requested
	made     map[jobs.ID]string // jobs whose creation was confirmed
	handed   map[jobs.ID]int    // number of claims of each job
	again    map[jobs.ID]bool   // jobs with retryAfter
	ending   map[jobs.ID]bool   // jobs whose end was requested
	finished map[jobs.ID]bool   // jobs whose end was confirmed
}

// work creates, claims and ends jobs until stop is closed. After a disconnection the result is
// unknown, and it continues with another connection.
func (l *ledger) work(who int, addr string, stop <-chan struct{}) {
	var nc net.Conn
	var in *bufio.Reader
	defer func() {
		if nc != nil {
			_ = nc.Close()
		}
	}()
	ask := func(text string) (said, bool) {
		if nc == nil {
			var err error
			if nc, err = net.DialTimeout("tcp", addr, time.Second); err != nil {
				nc = nil
				<-time.After(5 * time.Millisecond)
				return said{}, false
			}
			in = bufio.NewReader(nc)
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, err := io.WriteString(nc, text)
		var got said
		if err == nil {
			got, err = (&client{in: in}).receive()
		}
		if err != nil {
			_ = nc.Close()
			nc = nil
		}
		return got, err == nil
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		mark := fmt.Sprintf("%d-%d", who, n)
		again := n%10 == 9
		text := fmt.Sprintf("CreateJob\nname: foo\ndata: {\"mark\":%q}\n", mark)
		if again {
			text += "retryAfter: +1 SECONDS\n"
		}
		l.mu.Lock()
		l.tried[mark] = true
		l.mu.Unlock()
		var job struct{ JobID jobs.ID }
		if got, ok := ask(text + "\n"); ok && json.Unmarshal([]byte(got.Body), &job) == nil && got.Status == "200 OK" {
			l.mu.Lock()
			l.made[job.JobID] = mark
			l.again[job.JobID] = again
			l.mu.Unlock()
		}
		got, ok := ask("GetJob\nname: foo\n\n")
		if !ok || json.Unmarshal([]byte(got.Body), &job) != nil || got.Status != "200 OK" {
			continue
		}
		l.mu.Lock()
		l.handed[job.JobID]++
		l.again[job.JobID] = l.again[job.JobID] || strings.Contains(got.Body, "SECONDS")
		end := n%3 > 0
		l.ending[job.JobID] = l.ending[job.JobID] || end
		l.mu.Unlock()
		if !end {
			continue
		}
		if got, ok := ask(fmt.Sprintf("FinishJob\njobID: %d\n\n", job.JobID)); ok && got.Status == "200 OK" {
			l.mu.Lock()
			l.finished[job.JobID] = true
			l.mu.Unlock()
		}
	}
}

// judge compares the knowledge of the clients with the file.
func (l *ledger) judge(t *testing.T, file string) {
	t.Helper()
	store := liteOf(t, file)
	there := map[jobs.ID]bool{}
	left, err := over(t, store).List(t.Context(), jobs.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	marks := map[string]bool{}
	for _, j := range left {
		var data struct{ Mark string }
		if err := json.Unmarshal(j.Data, &data); err != nil || !l.tried[data.Mark] || marks[data.Mark] {
			t.Errorf("job %d with %s, which nobody wanted, or not twice", j.ID, j.Data)
		}
		marks[data.Mark], there[j.ID] = true, true
		if l.finished[j.ID] {
			t.Errorf("job %d is there, and was finished", j.ID)
		}
	}
	for id, mark := range l.made {
		if !there[id] && !l.ending[id] {
			t.Errorf("job %d (%s) was made, nobody ended it, and it is gone", id, mark)
		}
	}
	for id, n := range l.handed {
		if n > 1 && !l.again[id] {
			t.Errorf("job %d was handed out %d times", id, n)
		}
	}
	if len(l.made) < 100 || len(l.handed) < 100 || len(l.finished) < 50 {
		t.Errorf("too little to say anything: %d made, %d handed out, %d finished", len(l.made), len(l.handed), len(l.finished))
	}
	t.Logf("%d made, %d handed out, %d finished, %d left", len(l.made), len(l.handed), len(l.finished), len(left))
}

// TestKilled kills the server repeatedly: every change that it confirmed with 200 is stored, and no
// job is claimed twice without reason.
// Promises: B68.
func TestKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.db")
	c := startChild(t, file, "127.0.0.1:0")
	l := &ledger{
		tried: map[string]bool{}, made: map[jobs.ID]string{}, handed: map[jobs.ID]int{}, again: map[jobs.ID]bool{},
		ending: map[jobs.ID]bool{}, finished: map[jobs.ID]bool{},
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for who := range 8 {
		group.Go(func() { l.work(who, c.addr, stop) })
	}
	kills, rounds := 4, 150
	if raced {
		rounds = 60
	}
	for i := range kills {
		// Not before there are changes to lose.
		testwait.Until(t, "something has happened", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.finished) > rounds*(i+1)
		})
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
		c.kill()
		c = startChild(t, file, c.addr)
	}
	testwait.Until(t, "something has happened after the last one", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.finished) > rounds*(kills+1)
	})
	close(stop)
	group.Wait()
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Error("the last server:", err)
	}
	l.judge(t, file)
}

// TestOnceEachOnDisk lets 32 clients claim each job once.
// Promises: B30.
func TestOnceEachOnDisk(t *testing.T) {
	n := 10_000
	if raced {
		n = 500
	}
	const each = 500
	store := liteOf(t, filepath.Join(t.TempDir(), "jobs.db"))
	s := serve(t, Config{Service: over(t, store)})
	maker := dial(t, s.addr)
	for range n / each {
		maker.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(`{"name":"foo"},`, each), ",")+"]\n\n").wantStatus(t, ok)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[string]int, n)
	for range 32 {
		c := dial(t, s.addr)
		group.Go(func() {
			for {
				got := c.ask("GetJob\nname: f*\n\n")
				if got.Status == noJob {
					return
				}
				_, id, _ := strings.Cut(got.Body, `"jobID":`)
				id, _, _ = strings.Cut(id, ",")
				mu.Lock()
				seen[id]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for id, times := range seen {
		if times > 1 {
			t.Errorf("job %s was handed out %d times", id, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d were handed out", len(seen), n)
	}
}

// TestTooManyRows shows that a query returns ten thousand jobs and refuses one more.
func TestTooManyRows(t *testing.T) {
	c := dial(t, jobsServer(t, Config{}).addr)
	c.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(`{"name":"foo"},`, maxRows), ",")+"]\n\n").wantStatus(t, ok)
	var rows []json.RawMessage
	if err := json.Unmarshal([]byte(c.ask("Query\nquery: select * from jobs\n\n").Body), &rows); err != nil || len(rows) != maxRows {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	c.ask("CreateJob\nname: one too many\n\n").wantStatus(t, ok)
	c.ask("Query\nquery: select * from jobs\n\n").wantStatus(t, "402 Too many rows")
	c.ask("Query\nquery: select * from jobs where jobID=10001\n\n").wantStatus(t, ok)
	c.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(`{"name":"foo"},`, maxJobs+1), ",")+"]\n\n").wantStatus(t, "402 Too many jobs")
	small := dial(t, jobsServer(t, Config{MaxAnswer: 1000}).addr)
	small.ask("CreateJobs\njobs: ["+strings.TrimSuffix(strings.Repeat(`{"name":"foo"},`, 200), ",")+"]\n\n").wantStatus(t, ok)
	small.ask("Query\nquery: select * from jobs\n\n").wantStatus(t, "402 Too much data")
	// The jobs that do not fit are returned by the next requests.
	for all, rounds := 0, 0; all < 200; rounds++ {
		got := small.ask("GetJobs\nname: foo\nnumResults: 200\n\n")
		n := strings.Count(got.Body, "jobID")
		if all += n; n == 0 || len(got.Body) > 1000+len("]}") {
			t.Fatalf("%d jobs in %d bytes", n, len(got.Body))
		}
	}
}

// TestHostileClients shows that a normal client is answered in time whatever other clients do.
func TestHostileClients(t *testing.T) {
	s := jobsServer(t, Config{MaxHeader: 1 << 20, MaxBody: 1 << 20, MaxMemory: 16 << 20})
	stop := make(chan struct{})
	var group sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); group.Wait() })
	defer end() // before the server ends
	// attack sends begin, then more repeatedly with a pause. It does not read if it is deaf. After a
	// disconnection it connects again.
	attack := func(begin, more string, pause time.Duration, deaf bool) {
		group.Go(func() {
			for {
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err) // the limit permits all connections
					return
				}
				if !deaf {
					go func() { _, _ = io.Copy(io.Discard, nc) }() // it ends with the connection
				}
				_, err = io.WriteString(nc, begin)
				for err == nil {
					select {
					case <-stop:
						_ = nc.Close()
						return
					case <-time.After(pause):
					}
					_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
					_, err = io.WriteString(nc, more)
					if isTimeout(err) {
						err = nil // its buffers are full, as intended
					}
				}
				_ = nc.Close()
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
			}
		})
	}
	for range 50 {
		attack("CreateJob\nname: ", "a", 100*time.Millisecond, false) // one byte at a time
	}
	// a header without an end
	attack("CreateJob\ndata: ", strings.Repeat("a", 64<<10), 20*time.Millisecond, false)
	attack("CreateJob\nContent-Length: 1000000\n\n", strings.Repeat("a", 1<<10), 20*time.Millisecond, false)
	attack("", strings.Repeat("\n", 64<<10), 20*time.Millisecond, false)
	attack("A\n", strings.Repeat("a:\n", 10<<10), 20*time.Millisecond, false)
	// answers that are not read
	attack("", strings.Repeat("Query\nquery: select * from jobs\n\n", 10), 20*time.Millisecond, true)
	attack("", string([]byte{0, 255, 13, 10, 254, 1}), 20*time.Millisecond, false)
	attack("GetJob\nname: "+strings.Repeat("*a", 120)+"\nConnection: wait\n\n", "\n", 20*time.Millisecond, false)
	testwait.Until(t, "they have come", func() bool { return s.Stats().Accepted >= 57 })
	good := dial(t, s.addr)
	var worst time.Duration
	for i := range 60 {
		begin := time.Now()
		good.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
		wantGotAny(t, good.ask("GetJob\nname: foo\n\n"))
		if i == 0 {
			continue // the first one is not finished, since it is queried
		}
		good.ask(fmt.Sprintf("FinishJob\njobID: %d\n\n", i+1)).wantStatus(t, ok)
		worst = max(worst, time.Since(begin))
	}
	t.Logf("the slowest round took %v; %+v", worst, s.Stats())
	if worst > patience {
		t.Errorf("a round took %v", worst)
	}
	if n := s.Stats().Memory; n > 16<<20 {
		t.Errorf("requests take %d bytes", n)
	}
	end()
	testwait.Until(t, "all is given back", func() bool { return s.Stats().Connections == 1 && s.Stats().Memory == 0 })
}

func wantGotAny(t *testing.T, got said) {
	t.Helper()
	if got.Status != ok {
		t.Errorf("%+v", got)
	}
}
