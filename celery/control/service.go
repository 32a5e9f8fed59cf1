package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	node "github.com/swarmiji/swarmiji/control"
)

// ServiceConfig holds the settings of [NewService]. Only Bus must be set.
type ServiceConfig struct {
	// Bus gives the transport and the clock. Its events of tasks are those that enable_events and
	// disable_events switch.
	Bus *Bus
	// Allow lists the allowed commands by Celery's names, such as "ping". Another command gets a reply
	// with an error. Nil: all commands.
	Allow []string
	// Mingle asks the other workers for their revoked tasks at the start, as Python workers do. It has
	// no effect if Allow excludes "hello".
	Mingle bool
	// Logger receives commands that change something and, at most once a second, ignored messages.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Counts holds the numbers of received commands by outcome.
type Counts struct {
	Executed  uint64 // including those with an error in the reply
	NotMine   uint64 // for other nodes
	Malformed uint64 // unreadable or invalid, and ignored
	Unsent    uint64 // replies that could not be sent
}

// Service executes the commands of Celery's clients on a node, see consumer.Config.ControlServices.
// One Service serves one node at a time.
//
// Commands that Celery has and a node of this module has not get a reply with an error:
//
//   - time_limit: the limits of a task are those of its definition and its message.
//   - autoscale and pool_restart: Celery refuses them in its default configuration, too.
//   - memdump and objgraph.
type Service struct {
	cfg     ServiceConfig
	begin   time.Time
	revoked revoked

	executed, notMine, malformed, unsent atomic.Uint64

	mu       sync.Mutex
	quiet    time.Time // until then ignored messages are not logged
	unlogged int
}

var _ node.Service = (*Service)(nil)

// NewService returns a Service. It does no I/O. Returns an error without a Bus, and for an
// unknown command in Allow.
func NewService(c ServiceConfig) (*Service, error) {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("celery/control: Bus is not set"))
	}
	for _, name := range c.Allow {
		if commands(name) == nil {
			errs = append(errs, fmt.Errorf("celery/control: Allow: unknown command %q", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.Allow = slices.Clone(c.Allow)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Service{cfg: c, begin: time.Now()}, nil
}

// Counts returns the current counts. Safe for concurrent use.
func (s *Service) Counts() Counts {
	return Counts{Executed: s.executed.Load(), NotMine: s.notMine.Load(), Malformed: s.malformed.Load(), Unsent: s.unsent.Load()}
}

const (
	startTime  = time.Second // a node without its message broker starts after this time
	mingleTime = time.Second // in which other workers answer hello
	closeTime  = 5 * time.Second
	sendTime   = 5 * time.Second // limit for a reply
)

// Start implements [node.Service]. It waits up to one second for the mailbox of n. A goroutine
// tries again until the mailbox is open. With Mingle it then waits one second for the answers, as
// Python workers do. So n does not start a task that another worker knows to be revoked. The end of
// ctx ends both waits.
func (s *Service) Start(ctx context.Context, n node.Node) (serve, end func()) {
	stopped := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	mingles, limit := s.cfg.Mingle && s.allows("hello"), startTime
	if mingles {
		limit += mingleTime
	}
	go func() {
		defer close(ended)
		l, err := s.cfg.Bus.transport.Listen(ctx, Mailbox{Exchange: Commands, Node: s.name(n)}, func(m *Message) {
			select {
			case <-ready:
				s.handle(ctx, n, m)
			case <-ctx.Done():
			}
		})
		if err != nil {
			close(started)
			if ctx.Err() == nil {
				s.log(ctx, n, slog.LevelError, "celery/control: the node receives no commands of Celery", slog.Any("error", err))
			}
			return
		}
		if mingles {
			s.mingle(ctx, n)
		}
		close(started)
		<-ctx.Done()
		s.closeListener(ctx, n, l)
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-started:
	case <-late.C:
	case <-stopped:
	}
	return func() { close(ready) }, func() {
		cancel()
		<-ended
	}
}

// allows reports whether a command is allowed.
func (s *Service) allows(command string) bool {
	return s.cfg.Allow == nil || slices.Contains(s.cfg.Allow, command)
}

// name returns the name of n for Celery.
func (s *Service) name(n node.Node) string { return s.cfg.Bus.celeryName(n.NodeID()) }

// closeListener closes l within closeTime, also after the end of ctx, and logs a failure.
func (s *Service) closeListener(ctx context.Context, n node.Node, l Listener) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := l.Close(closing); err != nil {
		s.log(ctx, n, slog.LevelWarn, "celery/control: closing a mailbox failed", slog.Any("error", err))
	}
}

// handle executes one message, if it concerns n, and sends the reply. It counts
// and ignores any other message.
func (s *Service) handle(ctx context.Context, n node.Node, m *Message) {
	clock := &s.cfg.Bus.clock
	clock.forward()
	clock.adjust(m.Headers["clock"])
	r, err := readRequest(m)
	if err == nil {
		var mine bool
		if mine, err = r.concerns(s.name(n)); err == nil && !mine {
			s.notMine.Add(1)
			return
		}
	}
	if err != nil {
		s.ignore(ctx, n, err)
		return
	}
	reply, after := s.execute(ctx, n, r)
	s.executed.Add(1)
	if r.answered() && after == nil {
		s.answer(ctx, n, r, reply)
	}
	if after != nil {
		after()
	}
}

// execute executes r on n. It returns the reply, or, for a command without one, a function that the
// caller must call.
func (s *Service) execute(ctx context.Context, n node.Node, r *request) (reply any, after func()) {
	run := commands(r.Method)
	if run == nil {
		return failed("KeyError(" + repr(r.Method) + ")"), nil
	}
	if !s.allows(r.Method) {
		s.log(ctx, n, slog.LevelWarn, "celery/control: the command is not allowed", slog.String("command", r.Method))
		return failed("this worker does not allow " + r.Method), nil
	}
	c := call{service: s, node: n, args: r.Arguments}
	reply, err := run(ctx, &c)
	if err != nil {
		reply = failed(err.Error())
	}
	if c.changes {
		s.log(ctx, n, slog.LevelInfo, "celery/control: command", slog.String("command", r.Method), slog.Any("error", err))
	}
	return reply, c.after
}

// ignore counts an invalid message. It logs at most one in a second.
func (s *Service) ignore(ctx context.Context, n node.Node, reason error) {
	s.malformed.Add(1)
	s.mu.Lock()
	now, unlogged := time.Now(), s.unlogged
	if now.Before(s.quiet) {
		s.unlogged++
		s.mu.Unlock()
		return
	}
	s.quiet, s.unlogged = now.Add(time.Second), 0
	s.mu.Unlock()
	s.log(ctx, n, slog.LevelWarn, "celery/control: message ignored", slog.Any("error", reason), slog.Int("not_logged", unlogged))
}

// log writes a log entry with the node's id.
func (s *Service) log(ctx context.Context, n node.Node, level slog.Level, msg string, attrs ...slog.Attr) {
	s.cfg.Logger.LogAttrs(ctx, level, msg, append(attrs, slog.String("node", n.NodeID()))...)
}
