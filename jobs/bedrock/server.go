package bedrock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers requests of the protocol out of a Service. Make one with [New]. Its methods may be called from any goroutine.
type Server struct {
	c        Config
	commands []command
	statuses []named
	memory   *budget
	stats    counters

	running  atomic.Bool
	stopping atomic.Bool
	stopped  chan struct{} // closed when stopping is set

	mu    sync.Mutex
	conns map[*conn]struct{}
	group sync.WaitGroup // of connections
}

// Stats count what a server has done since it was made.
type Stats struct {
	Connections int64 // that are open now
	Waiting     int64 // requests that wait for a job now
	Accepted    int64 // connections
	Refused     int64 // connections, because there were too many, or their addresses are not allowed
	Requests    int64 // that were read
	GivenBack   int64 // jobs whose client could not have read the answer, or for which there was no memory
	Memory      int64 // bytes that large requests and answers take now
}

type counters struct{ connections, waiting, accepted, refused, requests, givenBack atomic.Int64 }

// ErrRunning is returned by a second Run or Serve of a Server.
var ErrRunning = errors.New("bedrock: the server runs already, or has run")

// New makes a Server, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func New(c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Server{c: c, commands: commands(), statuses: statuses(), memory: newBudget(c.MaxMemory), conns: map[*conn]struct{}{}, stopped: make(chan struct{})}, nil
}

// Stats returns what was counted.
func (s *Server) Stats() Stats {
	return Stats{
		Connections: s.stats.connections.Load(), Waiting: s.stats.waiting.Load(), Accepted: s.stats.accepted.Load(), Refused: s.stats.refused.Load(),
		Requests: s.stats.requests.Load(), GivenBack: s.stats.givenBack.Load(), Memory: s.memory.used.Load(),
	}
}

// Listen listens where the configuration says. Dead peers are noticed within three minutes, where the system can.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 6}}
	ln, err := l.Listen(ctx, "tcp", s.c.Listen)
	if err != nil {
		return nil, fmt.Errorf("bedrock: listening: %w", err)
	}
	return ln, nil
}

// Run listens and serves until ctx ends; see [Server.Serve].
func (s *Server) Run(ctx context.Context) error {
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, ln)
}

// Serve serves the connections of ln, which it closes, until ctx ends. Then it accepts no more, closes what is idle, answers each GetJob that
// waits with 303, lets what is under way go on for up to ShutdownTimeout, and cuts off the rest. The error is nil unless the listener
// failed before. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.Join(ErrRunning, ln.Close())
	}
	s.warn(ln.Addr())
	// What is under way when ctx ends goes on: its context is another.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	closed := context.AfterFunc(ctx, func() { _ = ln.Close() }) // Accept then ends
	err := s.accept(ctx, base, ln)
	if closed() {
		err = errors.Join(err, ln.Close())
	}
	s.stop(cut)
	return err
}

// accept accepts connections until ctx ends or the listener fails.
func (s *Server) accept(ctx, base context.Context, ln net.Listener) error {
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.admit(base, nc)
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was closed because of ctx
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("bedrock: accepting: %w", err)
		}
		// No file descriptors, most often. They come back.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.c.Logger.Warn("bedrock: accepting a connection", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// admit serves a connection, or refuses it.
func (s *Server) admit(base context.Context, nc net.Conn) {
	s.stats.accepted.Add(1)
	if !s.allowed(nc.RemoteAddr()) {
		s.stats.refused.Add(1)
		_ = nc.Close()
		return
	}
	if s.stats.connections.Add(1) > int64(s.c.MaxConns) {
		s.stats.connections.Add(-1)
		s.stats.refused.Add(1)
		refuse(nc, s.c.TLS != nil)
		return
	}
	c := newConn(s, nc)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.group.Go(func() {
		defer s.stats.connections.Add(-1)
		defer s.leave(c)
		c.serve(base)
	})
}

// refuse says that there are too many connections. What is written to a new one fits into the system's buffer: nobody waits.
func refuse(nc net.Conn, encrypted bool) {
	if !encrypted {
		_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = nc.Write(appendHead(nil, &answer{status: "503 Too many connections", close: true}))
	}
	_ = nc.Close()
}

func (s *Server) leave(c *conn) {
	_ = c.nc.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// stop ends all connections.
func (s *Server) stop(cut context.CancelFunc) {
	s.stopping.Store(true)
	close(s.stopped)
	// Whoever reads is woken up; whoever begins to read looks at stopping after it has set its deadline.
	s.each(func(c *conn) { _ = c.nc.SetReadDeadline(past()) })
	over := time.AfterFunc(s.c.ShutdownTimeout, func() {
		cut()
		s.each(func(c *conn) { _ = c.nc.Close() })
	})
	s.group.Wait()
	over.Stop()
}

func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
}

// encrypted makes the server's end of a TLS connection, if there is to be one.
func (s *Server) encrypted(nc net.Conn) net.Conn {
	if s.c.TLS == nil {
		return nc
	}
	return tls.Server(nc, s.c.TLS)
}
