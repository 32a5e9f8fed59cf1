package bedrock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
)

// echo is a command that answers with its arguments.
var echo = command{name: "Echo", do: func(_ context.Context, c *call) error {
	*c.out = append(append(*c.out, c.req.get("text")...), c.req.body...)
	return nil
}}

// blocking returns a command that blocks until let is closed or its context ends.
func blocking() (cmd command, begun chan struct{}, let chan struct{}) {
	begun, let = make(chan struct{}, 100), make(chan struct{})
	return command{name: "Block", do: func(ctx context.Context, c *call) error {
		begun <- struct{}{}
		select {
		case <-let:
			return echo.do(ctx, c)
		case <-ctx.Done():
			return ctx.Err()
		}
	}}, begun, let
}

// large is a command with a large answer.
var large = command{name: "Large", do: func(_ context.Context, c *call) error {
	*c.out = append(*c.out, make([]byte, 32<<20)...)
	return nil
}}

func TestConfig(t *testing.T) {
	_, err := New(Config{MaxConns: -1, MaxHeader: -1, MaxMemory: 1, Timeout: -1, IdleTimeout: 48 * time.Hour})
	for _, want := range []string{"Service", "MaxConns", "MaxHeader", "MaxMemory", "Timeout", "IdleTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell of %s", err, want)
		}
	}
	s, err := New(Config{Service: new(jobs.Service)})
	if err != nil {
		t.Fatal(err)
	}
	if s.c.Listen != "127.0.0.1:8888" || s.c.Timeout != 110*time.Second || s.c.MaxConns != 16384 {
		t.Errorf("%+v", s.c)
	}
}

func TestKeepAlive(t *testing.T) {
	s := serve(t, Config{}, echo)
	c := dial(t, s.addr)
	for i := range 3 {
		text := fmt.Sprint("number ", i)
		if diff := cmp.Diff(said{Status: "200 OK", Body: text}, c.ask("eCHO\ntext: "+text+"\n\n")); diff != "" {
			t.Error(diff)
		}
	}
	if got := s.Stats(); got.Requests != 3 || got.Connections != 1 || got.Accepted != 1 {
		t.Errorf("%+v", got)
	}
}

// TestPipelining shows that several requests are answered in order, each directly after its own
// command.
func TestPipelining(t *testing.T) {
	block, begun, let := blocking()
	s := serve(t, Config{}, echo, block)
	c := dial(t, s.addr)
	c.send("Echo\ntext: 1\n\nBlock\ntext: 2\n\nNonsense\n\nEcho\r\nContent-Length: 3\r\n\r\nabcEcho\ntext: 3\n\n")
	<-begun
	c.next().wantStatus(t, "200 OK") // although the next command has not ended
	close(let)
	var got []said
	for range 4 {
		got = append(got, c.next())
	}
	want := []said{{Status: "200 OK", Body: "2"}, {Status: "430 Unrecognized command"}, {Status: "200 OK", Body: "abc"}, {Status: "200 OK", Body: "3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConnectionClose(t *testing.T) {
	s := serve(t, Config{}, echo)
	c := dial(t, s.addr)
	c.send("Echo\nConnection: Close\ntext: bye\n\nEcho\ntext: no more\n\n")
	if diff := cmp.Diff(said{Status: "200 OK", Headers: []string{"Connection: close"}, Body: "bye"}, c.next()); diff != "" {
		t.Error(diff)
	}
	c.wantEnd()
}

// TestForget shows that the answer comes first and that the command is executed without a further
// answer.
func TestForget(t *testing.T) {
	var ran atomic.Bool
	let := make(chan struct{})
	s := serve(t, Config{}, command{name: "Slow", do: func(ctx context.Context, _ *call) error {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) < 30*time.Minute {
			t.Error("a command that is forgotten has an hour")
		}
		<-let
		ran.Store(true)
		return nil
	}}, command{name: "Take", takes: true, do: func(context.Context, *call) error {
		t.Error("what nobody will see was handed out")
		return nil
	}})
	c := dial(t, s.addr)
	want := said{Status: "202 Successfully queued", Headers: []string{"Connection: close"}}
	if diff := cmp.Diff(want, c.ask("Slow\nConnection: forget\n\n")); diff != "" {
		t.Error(diff)
	}
	c.wantEnd()
	if ran.Load() {
		t.Error("it ran already")
	}
	close(let)
	testwait.Until(t, "the command ran", ran.Load)
	c = dial(t, s.addr)
	c.ask("Take\nConnection: forget\n\n").wantStatus(t, want.Status)
	c.wantEnd()
}

func TestTimeout(t *testing.T) {
	block, _, _ := blocking()
	s := serve(t, Config{}, block)
	c := dial(t, s.addr)
	c.ask("Block\ntimeout: 10\n\n").wantStatus(t, "555 Timeout")
	c.ask("Block\ntimeout: 0\n\n").wantStatus(t, "555 Timeout")
	c.ask("Block\ntimeout: soon\n\n").wantStatus(t, "402 Malformed timeout")
	c.ask("Block\ntimeout: -1\n\n").wantStatus(t, "402 Malformed timeout")
	s = serve(t, Config{Timeout: 10 * time.Millisecond}, block)
	dial(t, s.addr).ask("Block\n\n").wantStatus(t, "555 Timeout")
}

// TestEndOfInput shows that a client that has closed its sending side is answered.
func TestEndOfInput(t *testing.T) {
	s := serve(t, Config{}, echo)
	for in, want := range map[string][]string{
		"Echo\n\nEcho\n\n":              {"200 OK", "200 OK"},
		"Echo\n\nEcho\n":                {"200 OK", "400 Incomplete request"},
		"Echo\nContent-Length: 9\n\nab": {"400 Incomplete request"},
		"\n\n":                          nil,
		"":                              nil,
	} {
		c := dial(t, s.addr)
		c.send(in)
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for _, status := range want {
			c.next().wantStatus(t, status)
		}
		c.wantEnd()
	}
}

// TestSlowClients shows that each phase has a time limit, and that slow clients do not delay
// others.
func TestSlowClients(t *testing.T) {
	const short = 50 * time.Millisecond
	for _, c := range []struct {
		name, begin, again, want string
		cfg                      Config
	}{
		{"header", "Echo\ntext: ", "a", "408 Request timeout", Config{HeaderTimeout: short}},
		{"body", "Echo\nContent-Length: 1000000\n\n", "a", "408 Request timeout", Config{BodyTimeout: short}},
		{"idle", "", "", "", Config{IdleTimeout: short}},
		{"blank lines", "\n", "\n", "", Config{IdleTimeout: short}},
		{"after an answer", "Echo\n\n", "", "200 OK", Config{IdleTimeout: short}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.cfg, echo)
			slow := dial(t, s.addr)
			slow.send(c.begin)
			ended := make(chan struct{})
			go func() { // it keeps sending
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for c.again != "" {
					select {
					case <-tick.C:
					case <-ended:
						return
					}
					if _, err := io.WriteString(slow.Conn, c.again); err != nil {
						return
					}
				}
			}()
			defer close(ended)
			if c.want != "" {
				slow.next().wantStatus(t, c.want)
			}
			slow.wantEnd()
			testwait.Until(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
		})
	}
}

// TestSlowReader shows that a client that does not read its answer is disconnected.
func TestSlowReader(t *testing.T) {
	s := serve(t, Config{WriteTimeout: 50 * time.Millisecond}, large, echo)
	deaf := dial(t, s.addr)
	_ = deaf.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	deaf.send("Large\n\n")
	testwait.Until(t, "the connection is gone, and its memory", func() bool {
		return s.Stats().Requests == 1 && s.Stats().Connections == 0 && s.Stats().Memory == 0
	})
	// A small answer behind full buffers.
	c := dial(t, s.addr)
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	go func() {
		text := "Echo\ntext: " + strings.Repeat("a", 60<<10) + "\n\n"
		for {
			if _, err := io.WriteString(c.Conn, text); err != nil {
				return
			}
		}
	}()
	testwait.Until(t, "the connection is gone", func() bool { return s.Stats().Accepted == 2 && s.Stats().Connections == 0 })
}

func TestLargeAnswer(t *testing.T) {
	s := serve(t, Config{}, large, echo)
	c := dial(t, s.addr)
	if got := c.ask("Large\n\n"); len(got.Body) != 32<<20 {
		t.Errorf("%d bytes", len(got.Body))
	}
	c.ask("Echo\n\n").wantStatus(t, "200 OK")
}

func TestTooManyConnections(t *testing.T) {
	s := serve(t, Config{MaxConns: 2}, echo)
	a, b := dial(t, s.addr), dial(t, s.addr)
	a.ask("Echo\n\n")
	b.ask("Echo\n\n")
	c := dial(t, s.addr)
	want := said{Status: "503 Too many connections", Headers: []string{"Connection: close"}}
	if diff := cmp.Diff(want, c.next()); diff != "" {
		t.Error(diff)
	}
	c.wantEnd()
	_ = a.Close()
	testwait.Until(t, "there is room again", func() bool { return s.Stats().Connections == 1 })
	dial(t, s.addr).ask("Echo\n\n").wantStatus(t, "200 OK")
	if n := s.Stats().Refused; n != 1 {
		t.Errorf("%d were refused", n)
	}
}

// TestMemory shows that large requests share MaxMemory and that small ones do not need it.
func TestMemory(t *testing.T) {
	s := serve(t, Config{MaxHeader: 1 << 20, MaxBody: 1 << 20, MaxMemory: 2 << 20}, echo, command{name: "Hear", do: func(context.Context, *call) error { return nil }})
	half := "Hear\ntext: " + strings.Repeat("a", 600<<10)
	greedy := []*client{dial(t, s.addr), dial(t, s.addr)}
	for i, c := range greedy {
		c.send(half)
		testwait.Until(t, "it has its memory", func() bool { return s.Stats().Memory > int64(i+1)*(900<<10) })
	}
	late := dial(t, s.addr)
	// the server may refuse it before all is sent
	go func() { _, _ = io.WriteString(late.Conn, half) }()
	late.next().wantStatus(t, "503 Server out of memory for requests")
	late.wantEnd()
	dial(t, s.addr).ask("Echo\ntext: "+strings.Repeat("a", 3<<10)+"\n\n").wantStatus(t, "200 OK")
	dial(t, s.addr).ask("Echo\ntext: "+strings.Repeat("a", 30<<10)+"\n\n").wantStatus(t, "503 Server out of memory for requests")
	greedy[0].send("\n\n")
	greedy[0].next().wantStatus(t, "200 OK")
	_ = greedy[1].Close()
	testwait.Until(t, "all is given back", func() bool { return s.Stats().Memory == 0 })
	dial(t, s.addr).ask(half+"\n\n").wantStatus(t, "200 OK")
}

// TestNoMemoryForAnswer shows that a job is given back if no memory is left for its answer. Small
// answers need none.
func TestNoMemoryForAnswer(t *testing.T) {
	s := jobsServer(t, Config{})
	c := dial(t, s.addr)
	for _, name := range []string{"small", "large", "large"} {
		data := "{}"
		if name == "large" {
			data = `{"text":"` + strings.Repeat("x", 100<<10) + `"}`
		}
		c.ask("CreateJob\nname: "+name+"\ndata: "+data+"\n\n").wantStatus(t, ok)
	}
	back := func() bool { return s.Stats().Memory == 0 }
	testwait.Until(t, "the memory of the requests is given back", back)
	all := int(s.c.MaxMemory / 2)
	if !s.memory.answer(all) || s.memory.answer(1) || !s.memory.request(all) || s.memory.request(1) {
		t.Fatal("answers have another part than half")
	}
	s.memory.request(-all)
	const none = "503 Server out of memory for answers"
	c.ask("GetJob\nname: large\n\n").wantStatus(t, none)
	c.ask("GetJobs\nname: large\nnumResults: 2\n\n").wantStatus(t, none)
	c.ask("QueryJob\njobID: 2\n\n").wantStatus(t, none)
	c.ask("Query\nquery: select * from jobs\n\n").wantStatus(t, none)
	if got := c.ask("GetJobs\nname: *\nnumResults: 9\n\n"); strings.Count(got.Body, "jobID") != 1 || !strings.Contains(got.Body, `"jobID":1`) {
		t.Errorf("%+v", got)
	}
	for id := range 2 {
		wantState(t, s, jobs.ID(id+2), jobs.Queued)
	}
	s.memory.answer(-all)
	if got := c.ask("GetJobs\nname: large\nnumResults: 2\n\n"); strings.Count(got.Body, "jobID") != 2 {
		t.Errorf("%d bytes", len(got.Body))
	}
	testwait.Until(t, "the memory of the answer is given back", back)
}

// TestLimits shows that too large requests are refused with a reason and that the connection is
// closed, even if the client continues to send.
func TestLimits(t *testing.T) {
	s := serve(t, Config{MaxHeader: 64 << 10, MaxBody: 64 << 10}, echo)
	for begin, want := range map[string]string{
		"Echo\ntext: ":                         "413 Request header too large",
		"Echo\nContent-Length: 1073741824\n":   "",
		"Echo\nContent-Length: 1073741824\n\n": "413 Request body too large",
		"Echo\nContent-Length: x\n\n":          "400 Malformed Content-Length",
	} {
		c := dial(t, s.addr)
		c.send(begin)
		if want == "" {
			continue
		}
		go func() {
			for range 2000 {
				if _, err := c.Conn.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		}()
		if got := c.next(); got.Status != want || !cmp.Equal(got.Headers, []string{"Connection: close"}) {
			t.Errorf("%q: %+v", begin, got)
		}
	}
}

func TestPanic(t *testing.T) {
	s := serve(t, Config{}, echo, command{name: "Panic", do: func(context.Context, *call) error { panic("oh") }})
	c := dial(t, s.addr)
	c.ask("Panic\n\n").wantStatus(t, "500 Internal error")
	c.wantEnd()
	dial(t, s.addr).ask("Echo\n\n").wantStatus(t, "200 OK")
}

// TestStop shows that a stop closes idle connections and answers running requests.
func TestStop(t *testing.T) {
	block, begun, let := blocking()
	s := serve(t, Config{}, echo, block)
	idle, half, busy := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	idle.ask("Echo\n\n")
	half.send("Echo\ntext: ")
	busy.send("Block\ntext: done\n\nEcho\n\n")
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	idle.wantEnd()
	half.wantEnd()
	close(let)
	if diff := cmp.Diff(said{Status: "200 OK", Headers: []string{"Connection: close"}, Body: "done"}, busy.next()); diff != "" {
		t.Error(diff)
	}
	busy.wantEnd()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("it listens still")
	}
	if err := s.Run(t.Context()); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
}

// TestStopAtOnce shows that requests that exceed ShutdownTimeout are interrupted.
func TestStopAtOnce(t *testing.T) {
	block, begun, _ := blocking()
	s := serve(t, Config{ShutdownTimeout: 20 * time.Millisecond}, block)
	c := dial(t, s.addr)
	c.send("Block\n\n")
	<-begun
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// TestListenerFails shows that Serve and its connections end when the listener fails.
func TestListenerFails(t *testing.T) {
	s, err := New(Config{Service: new(jobs.Service), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	s.commands = []command{echo}
	ln, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), ln) }()
	c := dial(t, ln.Addr().String())
	c.ask("Echo\n\n").wantStatus(t, "200 OK")
	_ = ln.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	c.wantEnd()
}

// TestListenFails shows that Run returns an error for an address in use.
func TestListenFails(t *testing.T) {
	s := serve(t, Config{}, echo)
	other, err := New(Config{Service: new(jobs.Service), Listen: s.addr})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context()); err == nil {
		t.Error("it listens where another does")
	}
}
