// Command jobs measures jobs and the line protocol in front of them, and prints one line of JSON.
//
//	go run ./bench/jobs [-store sqlite|postgres|mem] [-n 20000] [-clients 32] [-rounds 3]
//		[-rows 0] [-answers 0 [-respond]] [-idle 0]
//
// The database is private: a file in the directory for temporary files, or a separate PostgreSQL
// server. The file has every commit on disk. Each value is the median of the rounds. A value is the
// number of calls per second, with the processor time of this process and the allocations per call.
// The measurements take turns:
//
//   - direct: create, and get with finish, through the Service. With PostgreSQL it also measures
//     the bare client, with one statement for each of the three steps. The rounds begin with
//     alternating sides, and each round gives the ratio of the two.
//   - tcp: the same through the line protocol, with the server in this process. It also measures
//     the time from the answer to CreateJob to the answer of a waiting GetJob. That GetJob waits at
//     the same server, or at another server with its own store on the same database.
//   - rows, if requested: the time of a GetJob by name and by pattern. It is measured with a few
//     thousand jobs and with the given number. The jobs have 1,000 names and six priorities, and
//     half of them are not due.
//
// With -answers it instead measures jobs whose answers come from outside, through create, request,
// answer and end. That many jobs are in progress, all handled one at a time. With -respond a
// function checks each answer.
//
// With -idle it instead measures the cost of an idle runner beside that many waiting jobs. They
// wait for their time, for their turn and for their answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/postgres"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
)

// Report is the line that is printed.
type Report struct {
	Store   string
	N       int
	Clients int
	Direct  Direct
	TCP     TCP
	Few     map[string]float64 `json:",omitempty"` // µs, by pattern, with fewRows jobs
	Many    map[string]float64 `json:",omitempty"` // the same with Rows jobs
	Slower  map[string]float64 `json:",omitempty"` // Many divided by Few
	Rows    int                `json:",omitempty"`
}

const fewRows = 12_000 // a row for each name, priority and half

type options struct {
	store                    string
	n, clients, rounds, rows int
	answers, idle            int
	respond                  bool
	profile                  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "jobs:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var o options
	fs := flag.NewFlagSet("jobs", flag.ContinueOnError)
	fs.StringVar(&o.store, "store", "sqlite", "`kind` of the database: sqlite, postgres or mem")
	fs.IntVar(&o.n, "n", 20_000, "how many jobs a round has")
	fs.IntVar(&o.clients, "clients", 32, "how many clients there are at once")
	fs.IntVar(&o.rounds, "rounds", 3, "how many rounds")
	fs.IntVar(&o.rows, "rows", 0, "with how many rows patterns are measured; 0: not")
	fs.IntVar(&o.answers, "answers", 0, "measure jobs whose answers come from outside instead, with this `many` in flight")
	fs.BoolVar(&o.respond, "respond", false, "with -answers: a function of the runner looks at each answer")
	fs.IntVar(&o.idle, "idle", 0, "measure a runner without work instead, beside this `many` jobs that wait")
	fs.StringVar(&o.profile, "profile", "", "`file` for a CPU profile")
	if err := fs.Parse(args); err != nil || o.n < 1 || o.clients < 1 || o.rounds < 1 {
		return errors.Join(err, flag.ErrHelp)
	}
	url, end, err := database(ctx, o.store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if o.profile != "" && o.idle == 0 {
		if err := startProfile(o.profile); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch {
	case o.answers > 0:
		return answers(ctx, url, &o)
	case o.idle > 0:
		return idle(ctx, url, &o)
	}
	return measure(ctx, url, &o)
}

func startProfile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// database creates a private database. end removes it.
func database(ctx context.Context, kind string) (url string, end func() error, err error) {
	switch kind {
	case "mem":
		return "mem://", func() error { return nil }, nil
	case "postgres":
		pg, err := testserver.StartPostgres(ctx, testserver.PostgresConfig{})
		if err != nil {
			return "", nil, err
		}
		return pg.URL(), pg.Close, nil
	case "sqlite":
		dir, err := os.MkdirTemp("", "bench-jobs")
		return "sqlite:" + filepath.Join(dir, "jobs.db"), func() error { return os.RemoveAll(dir) }, err
	}
	return "", nil, fmt.Errorf("unknown store %q; known are sqlite, postgres, mem", kind)
}

func measure(ctx context.Context, url string, o *options) (err error) {
	s, closeService, err := service(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeService()) }()
	r := Report{Store: o.store, N: o.n, Clients: o.clients, Rows: o.rows}
	if r.Direct, err = direct(ctx, s, url, o.n, o.clients, o.rounds); err != nil {
		return err
	}
	var other *jobs.Service
	if !strings.HasPrefix(url, "mem") {
		var closeOther func() error
		if other, closeOther, err = service(ctx, url); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeOther()) }()
	}
	if r.TCP, err = overTCP(ctx, s, other, o.n, o.clients, o.rounds); err != nil {
		return err
	}
	if o.rows > 0 {
		if err := rows(ctx, s, o.rows, &r); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// rows measures patterns with few rows and with many.
func rows(ctx context.Context, s *jobs.Service, n int, r *Report) (err error) {
	const looks = 300
	if err := fill(ctx, s, fewRows); err != nil {
		return err
	}
	if r.Few, err = look(ctx, s, looks); err != nil {
		return err
	}
	if err := fill(ctx, s, n-fewRows); err != nil {
		return err
	}
	if r.Many, err = look(ctx, s, looks); err != nil {
		return err
	}
	r.Slower = make(map[string]float64)
	for k, v := range r.Many {
		r.Slower[k] = v / r.Few[k]
	}
	return nil
}

// service opens the database and makes a Service with it.
func service(ctx context.Context, url string) (*jobs.Service, func() error, error) {
	st, err := open.Jobs(ctx, url, open.JobsOptions{})
	if err != nil {
		return nil, nil, err
	}
	s, err := jobs.New(jobs.Config{Store: st})
	if err != nil {
		return nil, nil, errors.Join(err, st.Close(ctx))
	}
	return s, func() error {
		return errors.Join(s.Close(context.Background()), st.Close(context.Background()))
	}, nil
}
