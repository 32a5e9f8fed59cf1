package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/bedrock"
)

// TCP holds the speed of the line protocol.
type TCP struct {
	Create, Pair   cost    // medians; the clients are in this process
	Wait50, Wait99 float64 // ms from the answer to CreateJob to the answer of the waiting GetJob
	// the same with the GetJob at a server with its own store on the same database
	Cross50, Cross99 float64
}

// serve runs a server of the line protocol until stop is called.
func serve(ctx context.Context, s *jobs.Service) (addr string, stop func() error, err error) {
	srv, err := bedrock.New(bedrock.Config{Service: s})
	if err != nil {
		return "", nil, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(running, ln) }()
	return ln.Addr().String(), func() error { cancel(); return <-ended }, nil
}

// overTCP measures with the given number of clients. other is a second Service on the same
// database, or nil if there cannot be one.
func overTCP(ctx context.Context, s, other *jobs.Service, n, clients, rounds int) (t TCP, err error) {
	addr, stop, err := serve(ctx, s)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	conns := make([]*client, clients)
	for i := range conns {
		if conns[i], err = dial(ctx, addr); err != nil {
			return t, err
		}
		defer conns[i].close()
	}
	var creates, pairs []cost
	for range rounds {
		c, err := parallel(n, clients, func(w int) error {
			_, err := conns[w].must("CreateJob\nname: ", workName, "\ndata: ", workData)
			return err
		})
		if err != nil {
			return t, fmt.Errorf("CreateJob: %w", err)
		}
		p, err := parallel(n, clients, func(w int) error {
			body, err := conns[w].must("GetJob\nname: ", workName)
			if err != nil {
				return err
			}
			id, err := jobID(body)
			if err != nil {
				return err
			}
			_, err = conns[w].must("FinishJob\njobID: ", id)
			return err
		})
		if err != nil {
			return t, fmt.Errorf("GetJob and FinishJob: %w", err)
		}
		creates, pairs = append(creates, c), append(pairs, p)
	}
	t.Create, t.Pair = medianCost(creates), medianCost(pairs)
	if t.Wait50, t.Wait99, err = waits(ctx, addr, addr); err != nil || other == nil {
		return t, err
	}
	there, end, err := serve(ctx, other)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, end()) }()
	t.Cross50, t.Cross99, err = waits(ctx, addr, there)
	return t, err
}

// waits measures many times how long a waiting client takes to get the job that another client
// creates.
func waits(ctx context.Context, makes, gets string) (p50, p99 float64, err error) {
	maker, err := dial(ctx, makes)
	if err != nil {
		return 0, 0, err
	}
	defer maker.close()
	getter, err := dial(ctx, gets)
	if err != nil {
		return 0, 0, err
	}
	defer getter.close()
	type answer struct {
		at  time.Time
		id  string
		err error
	}
	answers := make(chan answer, 1)
	var took []time.Duration
	for range 500 {
		go func() {
			status, body, err := getter.do("GetJob\nname: wait*\nConnection: wait\ntimeout: 10000")
			a := answer{at: time.Now(), err: err}
			if err == nil && !strings.HasPrefix(status, "200 ") {
				a.err = fmt.Errorf("answered %s", status)
			}
			if a.err == nil {
				a.id, a.err = jobID(body)
			}
			answers <- a
		}()
		pass(ctx, 15*time.Millisecond) // the client waits by now
		if _, err := maker.must("CreateJob\nname: waited"); err != nil {
			return 0, 0, err
		}
		made := time.Now()
		a := <-answers
		if a.err != nil {
			return 0, 0, a.err
		}
		took = append(took, max(0, a.at.Sub(made)))
		if _, err := maker.must("FinishJob\njobID: ", a.id); err != nil {
			return 0, 0, err
		}
	}
	return percentile(took, 0.5), percentile(took, 0.99), nil
}
