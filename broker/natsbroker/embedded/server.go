package embedded

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// The classes of this package's errors. Compare them with [errors.Is]. They never hold a password.
var (
	// ErrLocked: a server runs on the directory already. The text names its process and says how to
	// join it.
	ErrLocked = errors.New("embedded: the directory has a server")
	// ErrStore: the data in the directory cannot be used. Open has not changed it.
	ErrStore = errors.New("embedded: unusable store")
	// ErrNotListening: no server on the directory accepts connections.
	ErrNotListening = errors.New("embedded: no server listens")
	// ErrClosed: the server was closed.
	ErrClosed = errors.New("embedded: closed")
)

// Server is a NATS server in this process. Create it with [Open]. All methods may be called from
// any goroutine. It implements nats.InProcessConnProvider.
type Server struct {
	dir  string
	url  *url.URL // nil: it does not listen
	nats *server.Server
	lock *os.File

	closing sync.Once
	closed  chan struct{} // closed when Close has begun
	ended   chan struct{} // closed when the server has ended and the directory is unlocked
	err     error         // the result of the end
}

// Open starts a server on a directory, which it creates if necessary. It blocks until the server
// has read its data and accepts connections.
//
// It returns [ErrLocked], [ErrStore], all problems of o joined, errors of the file system, or ctx's
// error. After ctx's error a goroutine undoes the start.
func Open(ctx context.Context, dir string, o Options) (*Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, host, port, err := o.complete()
	if dir == "" {
		err = errors.Join(err, errors.New("embedded: no directory is given"))
	}
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: making the directory: %w", err)
	}
	held, err := lock(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, lock: held, closed: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() { started <- s.start(ctx, o, host, port) }()
	select {
	case err = <-started:
	case <-ctx.Done():
		go func() {
			// no caller is left that could receive the error
			if err := errors.Join(<-started, s.end()); err != nil {
				o.Logger.Debug("embedded: undoing a start that took too long", "error", err)
			}
		}()
		return nil, fmt.Errorf("embedded: starting on %s: %w", dir, ctx.Err())
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// start runs the server, checks its streams and, if o.Listen is set, writes its address with a new
// password into the directory. It removes the address of a killed server first. It blocks until the
// server has read its data. Returns ErrStore if a stream cannot be used, and errors of the server
// and of the file system. After an error the caller must call end.
func (s *Server) start(ctx context.Context, o Options, host string, port int) error {
	if err := removeAddress(s.dir); err != nil { // the address of a killed server
		return fmt.Errorf("embedded: %w", err)
	}
	password := rand.Text()
	limit := o.MaxBody + headroom
	opts := &server.Options{
		ServerName:        "swarmiji-embedded",
		StoreDir:          s.dir,
		JetStream:         true,
		JetStreamMaxStore: o.StoreLimit,
		SyncAlways:        o.SyncAlways,
		SyncInterval:      o.SyncInterval,
		MaxPayload:        int32(limit),
		// a fetch may return many large messages at once
		MaxPending:                 max(64<<20, 16*int64(limit)),
		DontListen:                 o.Listen == "",
		Host:                       host,
		Port:                       port,
		NoSigs:                     true,
		NoLog:                      true, // until SetLogger
		DisableJetStreamBanner:     true,
		CustomClientAuthentication: gate{password: []byte(password)},
	}
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	nats, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	log := &logger{to: o.Logger, secret: password}
	nats.SetLogger(log, false, false)
	s.nats = nats
	nats.Start()
	if err := log.failure(); err != nil {
		return fmt.Errorf("embedded: starting on %s: %w", s.dir, err)
	}
	if err := check(ctx, s.dir, nats); err != nil {
		return err
	}
	if o.Listen == "" {
		return nil
	}
	s.url = &url.URL{Scheme: "nats", User: url.UserPassword(user, password), Host: nats.Addr().String()}
	if err := writeAddress(s.dir, s.url); err != nil {
		return fmt.Errorf("embedded: writing the address: %w", err)
	}
	return nil
}

// Dir returns the directory as an absolute path.
func (s *Server) Dir() string { return s.dir }

// URL returns the URL, with the password, at which other processes join. It returns "" without
// [Options].Listen.
func (s *Server) URL() string {
	if s.url == nil {
		return ""
	}
	return s.url.String()
}

// InProcessConn implements nats.InProcessConnProvider. It returns a connection to the server that
// needs no password. Returns [ErrClosed] after Close.
func (s *Server) InProcessConn() (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, ErrClosed
	default:
	}
	conn, err := s.nats.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClosed, err) // the server refuses only when it ends
	}
	return conn, nil
}

// Close ends the server in order, waits for its end, and unlocks the directory. Clients lose their
// connections. If ctx ends first it returns ctx's error and continues in the background; another
// Close waits for that. It is idempotent.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		close(s.closed)
		go func() {
			defer close(s.ended)
			s.err = s.end()
		}()
	})
	select {
	case <-s.ended:
		return s.err
	default:
	}
	select {
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("embedded: closing: %w", ctx.Err())
	}
}

// end removes the address, stops the server if it was started, and waits for its end. The lock is
// released last, because the server writes until then. It returns all errors joined. Call it
// once.
func (s *Server) end() error {
	var errs []error
	if err := removeAddress(s.dir); err != nil {
		errs = append(errs, err)
	}
	if s.nats != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
	if err := s.lock.Close(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("embedded: closing: %w", err)
	}
	return nil
}

// gate accepts connections from this process and connections with the password. It implements
// server.Authentication.
type gate struct{ password []byte }

// Check reports whether the connection is accepted: it comes from this process or has the
// password.
func (g gate) Check(c server.ClientAuthentication) bool {
	if a := c.RemoteAddress(); a != nil && a.Network() == "pipe" {
		return true
	}
	return subtle.ConstantTimeCompare([]byte(c.GetOpts().Password), g.password) == 1
}
