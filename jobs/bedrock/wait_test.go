package bedrock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
)

// waiter returns a client that waits for the job foo.
func waiter(t *testing.T, s *serving) *client {
	t.Helper()
	before := s.Stats().Waiting
	c := dial(t, s.addr)
	c.send("GetJob\nname: foo\nConnection: wait\ntimeout: 60000\n\n")
	testwait.Until(t, "it waits", func() bool { return s.Stats().Waiting > before && s.c.Service.Stats().Waiting > before })
	return c
}

// wantGot checks that a client has received the job.
func wantGot(t *testing.T, c *client, id int) {
	t.Helper()
	if got := c.next(); got.Status != ok || !strings.Contains(got.Body, fmt.Sprintf(`"jobID":%d,`, id)) {
		t.Errorf("%+v instead of job %d", got, id)
	}
}

// wantState waits until a job is in a state.
func wantState(t *testing.T, s *serving, id jobs.ID, state jobs.State) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("job %d is %s", id, state), func() bool {
		j, err := s.c.Service.Query(t.Context(), id)
		return err == nil && j.State == state
	})
}

// TestWait shows that a waiting client is answered when a job is created, given back, promoted or
// becomes due.
// Promises: B7, B31.
func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		before []string
		cause  string
		id     int
	}{
		"made":       {nil, "CreateJob\nname: foo\n\n", 1},
		"put back":   {[]string{"CreateJob\nname: foo\n\n", "GetJob\nname: foo\n\n"}, "RetryJob\njobID: 1\n\n", 1},
		"requeued":   {[]string{"CreateJob\nname: foo\n\n", "GetJob\nname: foo\n\n"}, "RequeueJobs\njobIDs: 1\n\n", 1},
		"updated":    {[]string{"CreateJob\nname: foo\nfirstRun: 2199-01-01\n\n"}, "UpdateJob\njobID: 1\ndata: {}\nnextRun: 2020-01-01\n\n", 1},
		"promoted":   {[]string{"CreateJob\nname: foo\nsequentialKey: k\n\n", "GetJob\nname: foo\n\n", "CreateJob\nname: foo\nsequentialKey: k\n\n"}, "FinishJob\njobID: 1\n\n", 2},
		"child":      {[]string{"CreateJob\nname: p\n\n", "GetJob\nname: p\n\n", "CreateJob\nname: foo\nparentJobID: 1\n\n"}, "FinishJob\njobID: 1\n\n", 2},
		"become due": {nil, "CreateJob\nname: foo\nfirstRun: " + time.Now().Add(2*time.Second).UTC().Format(timeForm) + "\n\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobsServer(t, Config{})
			other := dial(t, s.addr)
			for _, text := range c.before {
				other.ask(text).wantStatus(t, ok)
			}
			w := waiter(t, s)
			other.ask(c.cause).wantStatus(t, ok)
			wantGot(t, w, c.id)
			w.ask("GetJob\nname: foo\n\n").wantStatus(t, noJob)
		})
	}
}

// TestWaitForOne shows that one of many waiting clients gets a job and the others a timeout.
// Promises: B8.
func TestWaitForOne(t *testing.T) {
	s := jobsServer(t, Config{})
	var group sync.WaitGroup
	const n = 20
	answers := make(chan string, n)
	for range n {
		c := dial(t, s.addr)
		group.Go(func() {
			got := c.ask("GetJob\nname: f*\nConnection: wait\ntimeout: 500\n\n")
			answers <- got.Status
		})
	}
	testwait.Until(t, "all wait", func() bool { return s.c.Service.Stats().Waiting == n })
	dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	group.Wait()
	close(answers)
	count := map[string]int{}
	for status := range answers {
		count[status]++
	}
	if diff := cmp.Diff(map[string]int{ok: 1, "303 Timeout": n - 1}, count); diff != "" {
		t.Error(diff)
	}
}

// TestWaitsNotTooShort shows that a wait does not end before its timeout.
// Promises: B32.
func TestWaitsNotTooShort(t *testing.T) {
	s := jobsServer(t, Config{})
	c := dial(t, s.addr)
	begin := time.Now()
	c.ask("GetJob\nname: foo\nConnection: wait\ntimeout: 100\n\n").wantStatus(t, "303 Timeout")
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Errorf("it waited for %v", d)
	}
	c.ask("GetJob\nname: foo\nConnection: wait\ntimeout: 0\n\n").wantStatus(t, "303 Timeout")
	c.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	c.send("GetJob\nname: foo\nConnection: wait\ntimeout: 0\n\n")
	wantGot(t, c, 1)
}

// TestWaitWithMoreBehind shows that requests sent during a wait are answered after it.
func TestWaitWithMoreBehind(t *testing.T) {
	s := jobsServer(t, Config{})
	w := waiter(t, s)
	var all strings.Builder
	const many = 1000 // more than is read during a wait
	for range many {
		all.WriteString("QueryJob\njobID: 77\n\n")
	}
	w.send(all.String())
	dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	wantGot(t, w, 1)
	for range many {
		w.next().wantStatus(t, unknownJ)
	}
	// Several waiting requests, one after the other.
	w.send("GetJob\nname: foo\nConnection: wait\ntimeout: 50\n\nGetJob\nname: bar\nConnection: wait\n\nQueryJob\njobID: 77\n\n")
	w.next().wantStatus(t, "303 Timeout")
	testwait.Until(t, "the second one waits", func() bool { return s.c.Service.Stats().Waiting == 1 })
	dial(t, s.addr).ask("CreateJob\nname: bar\n\n").wantStatus(t, ok)
	wantGot(t, w, 2)
	w.next().wantStatus(t, unknownJ)
}

// TestTooMuchToWait shows that a client that has sent too much gets a 503 instead of waiting.
// Without a wait the size does not matter.
func TestTooMuchToWait(t *testing.T) {
	s := jobsServer(t, Config{})
	c := dial(t, s.addr)
	padding := strings.Repeat("x", mostWaiting)
	got := c.ask("GetJob\nname: foo\nConnection: wait\npadding: " + padding + "\n\n")
	got.wantStatus(t, "503 Cannot wait while requests take 524288 bytes of memory, at most 262144; send fewer before the answer")
	c.ask("GetJob\nname: foo\npadding: "+padding+"\n\n").wantStatus(t, noJob)
	c.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	c.send("GetJob\nname: foo\nConnection: wait\npadding: " + padding + "\n\n") // a job is due
	wantGot(t, c, 1)
}

// TestEndOfInputEndsWaits shows that a client that has closed its sending side does not wait, but
// is answered.
func TestEndOfInputEndsWaits(t *testing.T) {
	s := jobsServer(t, Config{})
	w := waiter(t, s)
	_ = w.Conn.(*net.TCPConn).CloseWrite()
	w.next().wantStatus(t, "303 Timeout")
	w.wantEnd()
	c := dial(t, s.addr)
	// The input between the requests is larger than the small buffers.
	c.send("GetJob\nname: foo\nConnection: wait\n\n" + strings.Repeat("\n", 5000) + "GetJobs\nname: foo\nnumResults: 2\nConnection: wait\n\nCreateJob\nname: foo\n\nGetJob\nname: foo\nConnection: wait\n\n")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	for _, want := range []string{"303 Timeout", "303 Timeout", ok} {
		c.next().wantStatus(t, want)
	}
	wantGot(t, c, 1)
	c.wantEnd()
	wantState(t, s, 1, jobs.Running) // it was claimed
}

// TestStopEndsWaits shows that a stopping server answers waiting clients.
func TestStopEndsWaits(t *testing.T) {
	s := jobsServer(t, Config{})
	w := waiter(t, s)
	full := waiter(t, s)
	full.send(strings.Repeat("QueryJob\njobID: 1\n\n", 2000)) // the rest is not read during the wait
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	for _, c := range []*client{w, full} {
		if diff := cmp.Diff(said{Status: "303 Timeout", Headers: []string{"Connection: close"}}, c.next()); diff != "" {
			t.Error(diff)
		}
		_ = c.Close()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestGone shows that a job is given back if its client has disconnected, but not if the client has
// read the answer.
// Promises: B8.
func TestGone(t *testing.T) {
	const get = "GetJob\nname: foo\n\n"
	reset := func(c *client) { _ = c.Conn.(*net.TCPConn).SetLinger(0); _ = c.Close() }
	buffered := func(c *client) { // the answer has arrived and was not read
		if _, err := c.in.Peek(1); err != nil {
			t.Error(err)
		}
	}
	read := func(c *client) { wantGot(t, c, 1) }
	for name, c := range map[string]struct {
		ask  string
		end  []func(c *client)
		back bool
	}{
		"closed before the answer":       {get, []func(*client){func(c *client) { _ = c.Close() }}, true},
		"broken off before the answer":   {get, []func(*client){reset}, true},
		"broken off after the answer":    {get, []func(*client){buffered, reset}, true},
		"closed with others behind":      {get + "GetJob\nname: bar\n\n", []func(*client){func(c *client) { _ = c.Close() }}, true},
		"closed after Connection: close": {"GetJob\nname: foo\nConnection: close\n\n", []func(*client){func(c *client) { _ = c.Close() }}, true},
		"several":                        {"GetJobs\nname: foo\nnumResults: 3\n\n", []func(*client){func(c *client) { _ = c.Close() }}, true},
		"read":                           {get, []func(*client){read, func(c *client) { _ = c.Close() }}, false},
		"read, Connection: close":        {"GetJob\nname: foo\nConnection: close\n\n", []func(*client){read, func(c *client) { _ = c.Close() }}, false},
		"read, and more sent":            {get, []func(*client){read, func(c *client) { c.ask("QueryJob\njobID: 1\n\n"); reset(c) }}, false},
		"sent all, and read":             {get, []func(*client){func(c *client) { _ = c.Conn.(*net.TCPConn).CloseWrite() }, read, func(c *client) { c.wantEnd() }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := jobsServer(t, Config{})
			dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
			one := dial(t, s.addr)
			one.send(c.ask)
			for _, do := range c.end {
				do(one)
			}
			if c.back {
				testwait.Until(t, "it has been given back", func() bool { return s.Stats().GivenBack == 1 })
				wantState(t, s, 1, jobs.Queued)
				again := dial(t, s.addr)
				again.send(get)
				wantGot(t, again, 1)
				return
			}
			testwait.Until(t, "the client is gone", func() bool { return s.Stats().Connections == 1 })
			wantState(t, s, 1, jobs.Running)
			if n := s.Stats().GivenBack; n != 0 {
				t.Errorf("%d were given back", n)
			}
		})
	}
}

// TestGoneWhileWaiting shows that a client that disconnects while it waits gets no job.
func TestGoneWhileWaiting(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"closed":     func(c *client) { _ = c.Close() },
		"broken off": func(c *client) { _ = c.Conn.(*net.TCPConn).SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := jobsServer(t, Config{})
			gone, stays := waiter(t, s), waiter(t, s)
			end(gone)
			testwait.Until(t, "one waits", func() bool { return s.c.Service.Stats().Waiting == 1 })
			dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
			wantGot(t, stays, 1)
		})
	}
}

// TestGoneAtRandom shows that clients that disconnect at random times lose no job.
func TestGoneAtRandom(t *testing.T) {
	s := jobsServer(t, Config{})
	n := 300
	if raced {
		n = 120
	}
	maker := dial(t, s.addr)
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		group.Go(func() {
			for k := i; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				nc, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = nc.Write([]byte("GetJob\nname: foo\nConnection: wait\ntimeout: 1000\n\n"))
				if k%3 > 0 {
					<-time.After(time.Duration(k%7) * 100 * time.Microsecond)
				}
				_ = nc.(*net.TCPConn).SetLinger(0)
				_ = nc.Close()
			}
		})
	}
	for range n {
		maker.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	}
	close(stop)
	group.Wait()
	testwait.Until(t, "they are gone", func() bool { return s.Stats().Connections == 1 })
	seen := map[string]bool{}
	for len(seen) < n {
		got := maker.ask("GetJob\nname: foo\n\n")
		if got.Status != ok || seen[got.Body] {
			t.Fatalf("after %d of %d: %+v", len(seen), n, got)
		}
		seen[got.Body] = true
	}
	t.Logf("%d were given back by the server, %d in all", s.Stats().GivenBack, s.c.Service.Stats().GivenBack)
}

// TestOnceEach lets many clients claim each job once.
// Promises: B30.
func TestOnceEach(t *testing.T) {
	s := jobsServer(t, Config{})
	const clients, n = 32, 2000
	var group sync.WaitGroup
	got := make([][]string, clients)
	for i := range clients {
		c := dial(t, s.addr)
		group.Go(func() {
			for k := range n / clients {
				if st := c.ask(fmt.Sprintf("CreateJob\nname: foo%d\ndata: {\"n\":%d}\n\n", i, k)).Status; st != ok {
					t.Error(st)
				}
				one := c.ask("GetJob\nname: foo*\n\n")
				if one.Status == noJob {
					continue
				}
				_, id, _ := strings.Cut(one.Body, `"jobID":`)
				id, _, _ = strings.Cut(id, ",")
				got[i] = append(got[i], id)
				if st := c.ask("FinishJob\njobID: " + id + "\n\n").Status; st != ok {
					t.Error(st)
				}
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, ids := range got {
		for _, id := range ids {
			if seen[id] {
				t.Errorf("job %s was handed out twice", id)
			}
			seen[id] = true
		}
	}
	left, err := s.c.Service.List(context.Background(), jobs.Filter{})
	if err != nil || len(seen)+len(left) != n/clients*clients {
		t.Errorf("%d were handed out, %d are left, %v", len(seen), len(left), err)
	}
}
