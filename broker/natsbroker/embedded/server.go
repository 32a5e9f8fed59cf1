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

// The classes of this package's errors. Compare with [errors.Is]. None of them holds a password.
var (
	// ErrLocked: a server runs on the directory already. The text says whose, and how to join it.
	ErrLocked = errors.New("embedded: the directory has a server")
	// ErrStore: the data in the directory cannot be used as it is. Nothing in it was changed.
	ErrStore = errors.New("embedded: unusable store")
	// ErrNotListening: no server on the directory takes connections.
	ErrNotListening = errors.New("embedded: no server listens")
	// ErrClosed: the server was closed.
	ErrClosed = errors.New("embedded: closed")
)

// Server is a NATS server in this process. Make one with [Open]. All methods may be called from any goroutine. It implements
// nats.InProcessConnProvider.
type Server struct {
	dir  string
	url  *url.URL // nil: it does not listen
	nats *server.Server
	lock *os.File

	closing sync.Once
	closed  chan struct{} // closed when Close has begun
	ended   chan struct{} // closed when the server has ended and the directory is unlocked
	err     error         // of the end
}

// Open starts a server on a directory, which it makes if need be. It returns when the server has read what is there and takes
// connections. Its errors are [ErrLocked], [ErrStore], all problems of o together, those of the file system, and ctx's: then
// what has begun is undone in the background.
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
			if err := errors.Join(<-started, s.end()); err != nil { // nobody else is left to tell
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

// start runs the server. What it leaves when it fails is for end.
func (s *Server) start(ctx context.Context, o Options, host string, port int) error {
	if err := removeAddress(s.dir); err != nil { // of one that was killed
		return fmt.Errorf("embedded: %w", err)
	}
	password := rand.Text()
	limit := o.MaxBody + headroom
	opts := &server.Options{
		ServerName:                 "swarmiji-embedded",
		StoreDir:                   s.dir,
		JetStream:                  true,
		JetStreamMaxStore:          o.StoreLimit,
		SyncAlways:                 o.SyncAlways,
		SyncInterval:               o.SyncInterval,
		MaxPayload:                 int32(limit),
		MaxPending:                 max(64<<20, 16*int64(limit)), // a fetch may bring many large messages at once
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

// URL returns where other processes join, with the password, and "" without [Options].Listen.
func (s *Server) URL() string {
	if s.url == nil {
		return ""
	}
	return s.url.String()
}

// InProcessConn implements nats.InProcessConnProvider: it returns a connection to the server that needs no password. After
// Close it returns [ErrClosed].
func (s *Server) InProcessConn() (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, ErrClosed
	default:
	}
	conn, err := s.nats.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClosed, err) // it refuses only when it ends
	}
	return conn, nil
}

// Close ends the server in good order, waits for it, and unlocks the directory. Clients lose their connections. When ctx ends
// first the error is ctx's, and the rest goes on in the background; another Close waits for it. It is idempotent.
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

// end stops the server, if there is one. The lock goes last: until then the server writes.
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

// gate lets in who comes from this process, or has the password. It implements server.Authentication.
type gate struct{ password []byte }

func (g gate) Check(c server.ClientAuthentication) bool {
	if a := c.RemoteAddress(); a != nil && a.Network() == "pipe" {
		return true
	}
	return subtle.ConstantTimeCompare([]byte(c.GetOpts().Password), g.password) == 1
}
