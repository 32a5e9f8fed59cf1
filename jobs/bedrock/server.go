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

// Server answers requests of the protocol by calling a Service. Create one with [New]. All methods
// are safe for concurrent use.
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

// Stats contains the counts of a server since New.
type Stats struct {
	Connections int64 // open connections
	Waiting     int64 // requests that wait for a job now
	Accepted    int64 // connections
	Refused     int64 // connections refused because of their number or their address
	Requests    int64 // requests read
	GivenBack   int64 // jobs given back, because of the client or a lack of memory
	Memory      int64 // bytes of large requests and answers now
}

// counters contains the counts that Stats returns.
type counters struct{ connections, waiting, accepted, refused, requests, givenBack atomic.Int64 }

// ErrRunning is the error of a second Run or Serve of a Server.
var ErrRunning = errors.New("bedrock: Run or Serve was already called; create a new server")

// New returns a Server with the defaults of c. It does no I/O and starts no goroutine. Returns all
// problems of c, joined. The Server is then nil.
func New(c Config) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Server{c: c, commands: commands(), statuses: statuses(), memory: newBudget(c.MaxMemory), conns: map[*conn]struct{}{}, stopped: make(chan struct{})}, nil
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	return Stats{
		Connections: s.stats.connections.Load(), Waiting: s.stats.waiting.Load(), Accepted: s.stats.accepted.Load(), Refused: s.stats.refused.Load(),
		Requests: s.stats.requests.Load(), GivenBack: s.stats.givenBack.Load(), Memory: s.memory.used.Load(),
	}
}

// Listen opens a listener on Config.Listen, for [Server.Serve]. The system closes connections of
// dead peers within three minutes, if it supports that. Returns an error if the address cannot be
// used.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 20 * time.Second, Count: 6}}
	ln, err := l.Listen(ctx, "tcp", s.c.Listen)
	if err != nil {
		return nil, fmt.Errorf("bedrock: cannot listen: %w", err)
	}
	return ln, nil
}

// Run listens on Config.Listen and serves until ctx ends. It blocks. Returns the errors of
// [Server.Listen] and [Server.Serve].
func (s *Server) Run(ctx context.Context) error {
	ln, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, ln)
}

// Serve accepts and serves the connections of ln until ctx ends, and closes ln. At the end it
// closes idle connections and answers each waiting GetJob with 303. Other requests may take up to
// ShutdownTimeout; then their connections are closed. It returns after the last connection has
// ended. It logs a warning if other machines can reach ln and the clients are not limited.
//
// Returns nil after a stop, [ErrRunning] for a second call, which also closes its ln, and the error
// of a listener that failed. A Server serves only once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.Join(ErrRunning, ln.Close())
	}
	s.warn(ln.Addr())
	// Requests that run when ctx ends continue, so they have another context.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	closed := context.AfterFunc(ctx, func() { _ = ln.Close() }) // Accept then returns
	err := s.accept(ctx, base, ln)
	if closed() {
		err = errors.Join(err, ln.Close())
	}
	s.stop(cut)
	return err
}

// accept accepts and serves connections until ctx ends, and then returns nil. It returns an error
// if the listener is closed before. After other errors it logs a warning, waits up to a second and
// tries again. base is the context of the connections.
func (s *Server) accept(ctx, base context.Context, ln net.Listener) error {
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.serveConn(base, nc)
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was closed because of ctx
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("bedrock: cannot accept connections: %w", err)
		}
		// Usually no file descriptor is free, which is temporary.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.c.Logger.Warn("bedrock: cannot accept a connection; trying again", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// serveConn serves an accepted connection in a new goroutine, which at the end closes it and
// removes it from s.conns. It closes the connection of a client that Config.Allow does not permit.
// Beyond MaxConns it answers 503 and closes the connection (refuse), for which it may block 100
// ms; otherwise it does not block. It counts accepted, refused and open connections. It takes
// s.mu.
func (s *Server) serveConn(base context.Context, nc net.Conn) {
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

// refuse answers 503, too many connections, and closes the connection. An encrypted connection is
// closed without an answer. It blocks for at most 100 ms; usually the answer fits into the
// system's buffer.
func refuse(nc net.Conn, encrypted bool) {
	if !encrypted {
		_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = nc.Write(appendHead(nil, &answer{status: "503 Too many connections", close: true}))
	}
	_ = nc.Close()
}

// leave closes a connection and removes it from s.conns. It takes s.mu.
func (s *Server) leave(c *conn) {
	_ = c.nc.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// stop ends all connections and blocks until their goroutines have returned. Idle connections and
// waits for jobs end at once; running requests may take ShutdownTimeout. If goroutines still run
// then, it calls cut, which ends the context of their requests, and closes the connections.
func (s *Server) stop(cut context.CancelFunc) {
	s.stopping.Store(true)
	close(s.stopped)
	// This wakes readers. A goroutine that starts to read checks stopping after setting its deadline.
	s.each(func(c *conn) { _ = c.nc.SetReadDeadline(past()) })
	over := time.AfterFunc(s.c.ShutdownTimeout, func() {
		cut()
		s.each(func(c *conn) { _ = c.nc.Close() })
	})
	s.group.Wait()
	over.Stop()
}

// each calls do for every open connection. It holds s.mu meanwhile, so do must not take s.mu.
func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
}

// encrypted returns the server side of a TLS connection over nc, without the handshake. Without
// Config.TLS it returns nc itself.
func (s *Server) encrypted(nc net.Conn) net.Conn {
	if s.c.TLS == nil {
		return nc
	}
	return tls.Server(nc, s.c.TLS)
}
