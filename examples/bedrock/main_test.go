package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/bedrock"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("BEDROCK_EXAMPLE"); addr != "" { // this program as the session's NC
		if err := run(context.Background(), addr, os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// server serves jobs in memory until the test ends, and returns where.
func server(t *testing.T) string {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	s, err := bedrock.New(bedrock.Config{Service: service, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := service.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// session is the output of session.sh. T stands for any time.
const session = `# Somebody makes a job, which repeats a minute after each run.
$ CreateJob
name: foo
data: {"value":1}
repeat: finished, +1 minute

200 OK
Content-Length: 11

{"jobID":1}

# A worker takes it.
$ GetJob
name: foo

200 OK
Content-Length: 201

{"created":T,"data":{"value":1},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"finished, +1 minute","retryAfter":""}

# The worker says how far it has come, and anybody may look.
$ UpdateJob
jobID: 1
data: {"value":2}

200 OK
Content-Length: 0



$ QueryJob
jobID: 1

200 OK
Content-Length: 219

{"created":T,"data":{"value":2},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"finished, +1 minute","retryAfter":"","state":"RUNNING"}

# It ends the run, and says what the next one begins with.
$ FinishJob
jobID: 1
data: {"value":3}

200 OK
Content-Length: 0



# For now there is nothing to do; the job waits for its time.
$ GetJob
name: foo

404 No job found
Content-Length: 0



$ Query
query: select * from jobs;

200 OK
Content-Length: 120

[[T,1,"QUEUED","foo",T,T,"finished, +1 minute",{"value":3}]]

# A minute later:
$ UpdateJob
jobID: 1
data: {"value":3}
nextRun: 2014-12-29 07:39:51

200 OK
Content-Length: 0



$ GetJob
name: foo

200 OK
Content-Length: 201

{"created":T,"data":{"value":3},"jobID":1,"lastRun":T,"name":"foo","nextRun":T,"priority":500,"repeat":"finished, +1 minute","retryAfter":""}

`

// need skips a test on a machine that lacks what, and fails it where all has to be there.
func need(t *testing.T, there bool, what string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("SWARMIJI_REQUIRE_SERVERS") == "1":
		t.Fatalf("missing: %s", what)
	default:
		t.Skipf("skipped, set SWARMIJI_REQUIRE_SERVERS=1 to fail instead; missing: %s", what)
	}
}

// TestSession runs the script with this program in nc's place, and with nc.
func TestSession(t *testing.T) {
	_, err := exec.LookPath("sh")
	need(t, err == nil, "sh, which runs the script")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, nc := range map[string]func(addr string) (nc string, env []string){
		"this program": func(addr string) (string, []string) { return self, []string{"BEDROCK_EXAMPLE=" + addr} },
		"nc": func(addr string) (string, []string) {
			host, port, _ := net.SplitHostPort(addr)
			return "nc -N " + host + " " + port, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "nc" {
				help, _ := exec.CommandContext(t.Context(), "nc", "-h").CombinedOutput()
				need(t, bytes.Contains(help, []byte("-N")), "nc with the option -N, as of Debian's netcat-openbsd")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			text, env := nc(server(t))
			cmd := exec.CommandContext(ctx, "sh", "session.sh")
			cmd.Env = append(append(os.Environ(), "HURRY=1", "NC="+text, "GORACE=atexit_sleep_ms=0"), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := regexp.MustCompile(`"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"`).ReplaceAllString(string(out), "T")
			if diff := cmp.Diff(session, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	if err := run(t.Context(), "127.0.0.1:1", strings.NewReader(""), &strings.Builder{}); err == nil {
		t.Error("somebody answered")
	}
}
