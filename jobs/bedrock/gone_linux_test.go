package bedrock

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
)

// vanish makes a client's system receive no more packets, as if its network had failed. The server
// receives neither an end nor a reset.
func vanish(t *testing.T, nc *net.TCPConn) {
	t.Helper()
	control(t, nc, func(fd int) error {
		// The filter cuts each packet to 0 bytes.
		drop := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}
		//lint:ignore SA1019 the replacement is in another module
		return syscall.AttachLsf(fd, drop) //nolint:staticcheck // as above
	})
}

// comeBack undoes vanish.
func comeBack(t *testing.T, nc *net.TCPConn) {
	t.Helper()
	//lint:ignore SA1019 as above
	control(t, nc, syscall.DetachLsf) //nolint:staticcheck // as above
}

func control(t *testing.T, nc *net.TCPConn, do func(fd int) error) {
	t.Helper()
	raw, err := nc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { err = do(int(fd)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
}

// TestVanished shows that the job of a client that has vanished goes to another client.
func TestVanished(t *testing.T) {
	const wait = "GetJob\nname: foo\nConnection: wait\ntimeout: 60000\n"
	for name, ask := range map[string]string{
		"waiting":             wait + "\n",
		"several":             "GetJobs\nname: foo\nnumResults: 3\nConnection: wait\ntimeout: 60000\n\n",
		"with another behind": wait + "\nGetJob\nname: bar\nConnection: wait\ntimeout: 60000\n\n",
		"with a half behind":  wait + "\nGetJob\nname: b",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobsServer(t, Config{WriteTimeout: 300 * time.Millisecond, HeaderTimeout: 300 * time.Millisecond})
			gone := dial(t, s.addr)
			gone.send(ask)
			testwait.Until(t, "it waits", func() bool { return s.c.Service.Stats().Waiting == 1 })
			vanish(t, gone.Conn.(*net.TCPConn))
			dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
			wantState(t, s, 1, jobs.Running)
			gotByAnother(t, s)
		})
	}
	for name, ask := range map[string]string{
		"after all was sent":     "GetJob\nname: foo\n\n",
		"with Connection: close": "GetJob\nname: foo\nConnection: close\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := jobsServer(t, Config{WriteTimeout: 300 * time.Millisecond})
			dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
			gone := dial(t, s.addr)
			vanish(t, gone.Conn.(*net.TCPConn))
			gone.send(ask)
			_ = gone.Conn.(*net.TCPConn).CloseWrite()
			wantState(t, s, 1, jobs.Running)
			gotByAnother(t, s)
		})
	}
	t.Run("encrypted", func(t *testing.T) {
		t.Parallel()
		server, clients, _ := certificates(t)
		s := jobsServer(t, Config{TLS: server, WriteTimeout: 300 * time.Millisecond})
		plain, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		gone := newClient(t, tls.Client(plain, clients))
		gone.send(wait + "\n")
		testwait.Until(t, "it waits", func() bool { return s.c.Service.Stats().Waiting == 1 })
		vanish(t, plain.(*net.TCPConn))
		if _, err := s.c.Service.Create(t.Context(), jobs.Spec{Name: "foo"}); err != nil {
			t.Fatal(err)
		}
		wantState(t, s, 1, jobs.Running)
		wantState(t, s, 1, jobs.Queued)
	})
	t.Run("the server stops", func(t *testing.T) {
		t.Parallel()
		s := jobsServer(t, Config{WriteTimeout: time.Minute, ShutdownTimeout: 300 * time.Millisecond})
		gone := waiter(t, s)
		vanish(t, gone.Conn.(*net.TCPConn))
		dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
		wantState(t, s, 1, jobs.Running)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		wantState(t, s, 1, jobs.Queued)
	})
}

// gotByAnother checks that another client gets the job of a client that has vanished.
func gotByAnother(t *testing.T, s *serving) {
	t.Helper()
	other := dial(t, s.addr)
	other.send("GetJob\nname: foo\nConnection: wait\ntimeout: 30000\n\n")
	wantGot(t, other, 1)
	testwait.Until(t, "it was given back", func() bool { return s.Stats().GivenBack == 1 })
	wantState(t, s, 1, jobs.Running)
}

// TestSlowButAlive shows that a client that reads slowly, or was away for less than WriteTimeout,
// keeps its job. Other requests do not wait for it.
func TestSlowButAlive(t *testing.T) {
	t.Run("away for a time", func(t *testing.T) {
		t.Parallel()
		s := jobsServer(t, Config{WriteTimeout: time.Minute})
		w := waiter(t, s)
		nc := w.Conn.(*net.TCPConn)
		vanish(t, nc)
		dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
		wantState(t, s, 1, jobs.Running)
		comeBack(t, nc)
		wantGot(t, w, 1) // the system sends it again
		w.ask("FinishJob\njobID: 1\n\n").wantStatus(t, ok)
		if n := s.Stats().GivenBack; n != 0 {
			t.Errorf("%d were given back", n)
		}
	})
	t.Run("reads nothing for a time", func(t *testing.T) {
		t.Parallel()
		// The client's system has the answer; the program need not read it.
		s := jobsServer(t, Config{WriteTimeout: 50 * time.Millisecond})
		w := waiter(t, s)
		dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
		testwait.Until(t, "the answer is there", func() bool { return unread(t, w) > 0 })
		<-testwait.Brief(t).Done() // many times WriteTimeout, in which nothing must happen
		wantGot(t, w, 1)
		w.ask("FinishJob\njobID: 1\n\n").wantStatus(t, ok)
	})
	t.Run("reads slowly", func(t *testing.T) {
		t.Parallel()
		const timeout = 2 * time.Second
		s := jobsServer(t, Config{WriteTimeout: timeout})
		data := `{"text":"` + strings.Repeat("x", 1000<<10) + `"}`
		dial(t, s.addr).ask("CreateJob\nname: foo\ndata: "+data+"\n\n").wantStatus(t, ok)
		c := dial(t, s.addr)
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		c.send("GetJob\nname: foo\n\n")
		const parts = 100 // in one and a half times WriteTimeout
		tick := time.NewTicker(3 * timeout / 2 / parts)
		defer tick.Stop()
		for i := range parts {
			if _, err := io.CopyN(io.Discard, c.Conn, int64(len(data)/parts)); err != nil {
				t.Fatalf("in part %d: %v", i, err)
			}
			<-tick.C
		}
		wantState(t, s, 1, jobs.Running)
		if n := s.Stats().GivenBack; n != 0 {
			t.Errorf("%d were given back", n)
		}
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		s := jobsServer(t, Config{WriteTimeout: time.Minute})
		c := dial(t, s.addr)
		nc := c.Conn.(*net.TCPConn)
		vanish(t, nc)
		c.send("CreateJob\nname: foo\n\nGetJob\nname: foo\n\nCreateJob\nname: bar\n\nFinishJob\njobID: 1\n\nCreateJob\nname: last\n\n")
		// Their answers are not acknowledged, and nothing waits for that.
		testwait.Until(t, "all are done", func() bool { return s.Stats().Requests == 5 })
		wantState(t, s, 3, jobs.Queued)
		comeBack(t, nc)
		for i := range 5 {
			if got := c.next(); got.Status != ok {
				t.Errorf("%d: %+v", i, got)
			}
		}
	})
}

// BenchmarkGetFinish measures claiming and finishing a job through a server in memory.
func BenchmarkGetFinish(b *testing.B) {
	s := jobsServer(b, Config{})
	c := dial(b, s.addr)
	b.ReportAllocs()
	for i := range b.N {
		_ = c.SetDeadline(time.Now().Add(patience))
		c.ask("CreateJob\nname: foo\n\n")
		c.ask("GetJob\nname: foo\n\n")
		if got := c.ask(fmt.Sprintf("FinishJob\njobID: %d\n\n", i+1)); got.Status != ok {
			b.Fatal(got.Status)
		}
	}
}
