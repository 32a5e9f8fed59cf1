package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults and limits of a [Server].
const (
	DefaultWindow = time.Minute
	LookRate      = 1000 // commands per second that a node examines
	// commands per second that a node executes, after a burst of five times as many
	ObeyRate = 20
)

// Config configures a [Server]. Only Bus must be set. The server does not close the buses.
type Config struct {
	// Bus carries commands, and replies to clients without Replies. Use one without the events of
	// tasks; see open.Options.Control.
	Bus events.EventBus
	// Replies is a second bus, to which no node listens. It carries the replies to clients that use
	// the same one, so that nodes do not receive the replies of each other. nil: all replies use Bus.
	// They do so for 5 minutes, too, after it has dropped a reply.
	Replies events.EventBus
	// Keys verify commands and sign replies. nil: all commands are accepted.
	Keys *Keys
	// Allow lists the allowed actions; other actions get a reply with an error. nil: all.
	Allow []Action
	// Window is the maximum difference between a signed command's time and this node's clock. Default:
	// [DefaultWindow], 1 min.
	Window time.Duration
	// Logger gets every command. Default: slog.Default().
	Logger *slog.Logger
}

// Allows reports whether an action is allowed.
func (c *Config) Allows(a Action) bool { return c.Allow == nil || slices.Contains(c.Allow, a) }

// Counts holds the numbers of commands by outcome, since the start.
type Counts struct {
	Obeyed    uint64 // executed, including those with an error in the reply
	NotMine   uint64 // for other nodes
	Denied    uint64 // not in Config.Allow
	Malformed uint64 // unreadable, too large or invalid
	Unsigned  uint64
	Forged    uint64 // signed with an unknown key, or changed
	Stale     uint64 // outside the window, or before the node's start
	Replayed  uint64 // received before
	Flooded   uint64 // dropped because there were too many
}

// ErrRunning is returned by the second call of Run.
var ErrRunning = errors.New("control: Run was called before")

// Server receives commands and executes them on one node. Make one with [NewServer].
type Server struct {
	cfg     Config
	node    Node
	started atomic.Bool

	obeyed, notMine, denied, malformed, unsigned, forged, stale, replayed, flooded atomic.Uint64

	// Only Run's goroutine uses these.
	begin      time.Time
	look, acts bucket
	seen       seen
	quiet      time.Time // until then refusals are counted, but not logged
	unlogged   int
	dropped    uint64    // replies that the bus for replies has dropped
	droppedAt  time.Time // when this was last seen to grow
}

// NewServer returns a Server. It does no I/O and starts nothing. It copies the keys and Allow, and
// sets the defaults of Window and Logger. Its error joins all problems of the configuration: Bus or
// the node is nil, an action is unknown, Window is negative, or the keys are invalid.
func NewServer(c Config, n Node) (*Server, error) {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("config: Bus is not set"))
	}
	if n == nil {
		errs = append(errs, errors.New("the node is nil"))
	}
	for _, a := range c.Allow {
		if !slices.Contains(Actions(), a) {
			errs = append(errs, fmt.Errorf("config: Allow: unknown action %q", a))
		}
	}
	c.Allow = slices.Clone(c.Allow)
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Window < 0 {
		errs = append(errs, fmt.Errorf("config: Window is %v", c.Window))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	keys, err := c.Keys.complete()
	c.Keys = keys
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Server{cfg: c, node: n, look: newBucket(LookRate, LookRate), acts: newBucket(ObeyRate, 5*ObeyRate)}, nil
}

// Counts returns the current counts; those of a nil Server are zero. Safe for concurrent use.
func (s *Server) Counts() Counts {
	if s == nil {
		return Counts{}
	}
	return Counts{
		Obeyed: s.obeyed.Load(), NotMine: s.notMine.Load(), Denied: s.denied.Load(), Malformed: s.malformed.Load(),
		Unsigned: s.unsigned.Load(), Forged: s.forged.Load(), Stale: s.stale.Load(), Replayed: s.replayed.Load(), Flooded: s.flooded.Load(),
	}
}

// Run receives and executes commands, one after the other, until ctx ends, and then returns nil.
// While the first subscription fails, it retries. At the end it closes the subscription, which may
// take 5 s; it does not close the bus.
//
// Returns [ErrRunning] if Run was called before, and an error of the bus otherwise, such as
// [events.ErrClosed].
func (s *Server) Run(ctx context.Context) error { return s.run(ctx, func() {}) }

// run is Run. It calls subscribed after the first subscription and before the first command.
func (s *Server) run(ctx context.Context, subscribed func()) error {
	if !s.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	s.begin = time.Now().Truncate(time.Millisecond) // in the precision of messages
	sub, err := s.subscribe(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if err := sub.Close(closing); err != nil && !errors.Is(err, events.ErrClosed) {
			s.log(ctx, slog.LevelWarn, "control: closing the subscription failed", slog.Any("error", err))
		}
	}()
	subscribed()
	for {
		e, err := sub.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("control: %w", err)
		}
		s.handle(ctx, &e)
	}
}

// Start calls Run on a goroutine until end is called; the end of ctx does not stop it. Start waits
// up to startTime for the subscription. Commands wait until serve is called, once. end waits for
// Run. If Run fails, that is logged, and the node runs without commands. If s is nil, Start and the
// functions do nothing.
func (s *Server) Start(ctx context.Context) (serve, end func()) {
	if s == nil {
		return func() {}, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	subscribed, ready, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := s.run(ctx, func() {
			close(subscribed)
			select {
			case <-ready:
			case <-ctx.Done():
			}
		})
		if err != nil {
			s.log(ctx, slog.LevelError, "control: the node no longer receives commands", slog.Any("error", err))
		}
	}()
	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case <-subscribed:
	case <-ended:
	case <-late.C:
	}
	return func() { close(ready) }, func() {
		cancel()
		<-ended
	}
}

const (
	closeTime     = 5 * time.Second
	subscribeTime = 10 * time.Second
	startTime     = time.Second // a node without its bus starts after this time
)

// subscribe subscribes to commands. It blocks and retries until it succeeds, ctx ends or the bus is
// closed; then it returns the last error. It logs the first failure.
func (s *Server) subscribe(ctx context.Context) (events.Subscription, error) {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		once, cancel := context.WithTimeout(ctx, subscribeTime)
		sub, err := s.cfg.Bus.Subscribe(once, events.Filter{Types: []string{CommandEvent}})
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
			return sub, err
		}
		if attempt == 0 {
			s.log(ctx, slog.LevelWarn, "control: subscribing to commands failed; trying again", slog.Any("error", err))
		}
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return nil, err
		}
	}
}

// handle processes one event: it checks the command, executes it if it concerns this node, logs it
// and sends the reply. It counts the event by its outcome in [Counts]. It blocks until the reply is
// sent.
//
// A command with a bad signature, time or id, or too many of them, get no reply. An action that
// Config.Allow does not list gets a reply with an error. A shutdown happens after the reply was
// sent.
func (s *Server) handle(ctx context.Context, e *events.Event) {
	now := time.Now()
	if !s.look.take(now) {
		s.flooded.Add(1) // not logged, so that a flood costs little
		return
	}
	h, c, key, err := s.open(e, now)
	if err != nil {
		s.refuse(ctx, now, e, err)
		return
	}
	if !c.concerns(s.node.NodeID(), s.node.Queues()) {
		s.notMine.Add(1)
		return
	}
	if !s.acts.take(now) {
		s.refuse(ctx, now, e, errFlood)
		return
	}
	var r Reply
	var after func()
	if !s.cfg.Allows(c.Do) {
		s.denied.Add(1)
		r.Error = fmt.Sprintf("this node does not allow %s", c.Do)
	} else {
		r, after = execute(ctx, s.node, &c)
		s.obeyed.Add(1)
	}
	s.audit(ctx, &h, &c, key, r.Error)
	r.At = now
	s.answer(ctx, &h, &r)
	if after != nil {
		after()
	}
}

// open reads a command from an event and verifies its signature, time and id. It returns the head,
// the command and the id of the key. It remembers the command's id, so that a repetition is
// refused.
//
// Returns errUnsigned, errForged, errStale, errReplayed, errFlood, errMalformed, or an error of
// [Command.Check]. Without Keys it checks neither signature nor time.
func (s *Server) open(e *events.Event, now time.Time) (h head, c Command, key string, err error) {
	m, err := readMessage(e)
	if err != nil {
		return h, c, "", err
	}
	if err := s.cfg.Keys.verify(m); err != nil {
		return h, c, "", err
	}
	if h, err = m.readHead(); err != nil {
		return h, c, "", err
	}
	until := now.Add(s.cfg.Window)
	if s.cfg.Keys != nil {
		at := h.time()
		if at.Before(now.Add(-s.cfg.Window)) || at.After(now.Add(s.cfg.Window)) || at.Before(s.begin) {
			return h, c, "", errStale
		}
		until = at.Add(s.cfg.Window)
	}
	if err := s.seen.note(h.ID, now, until); err != nil {
		return h, c, "", err
	}
	c, err = m.readCommand()
	return h, c, m.key, err
}

// refuse counts an ignored command by its reason. It logs at most one of them in a second, with the
// number of those that were not logged.
func (s *Server) refuse(ctx context.Context, now time.Time, e *events.Event, reason error) {
	switch {
	case errors.Is(reason, errUnsigned):
		s.unsigned.Add(1)
	case errors.Is(reason, errForged):
		s.forged.Add(1)
	case errors.Is(reason, errStale):
		s.stale.Add(1)
	case errors.Is(reason, errReplayed):
		s.replayed.Add(1)
	case errors.Is(reason, errFlood):
		s.flooded.Add(1)
	default:
		s.malformed.Add(1)
	}
	if now.Before(s.quiet) {
		s.unlogged++
		return
	}
	s.log(ctx, slog.LevelWarn, "control: command ignored", slog.Any("error", reason), slog.String("from", e.NodeID), slog.Int("not_logged", s.unlogged))
	s.quiet, s.unlogged = now.Add(time.Second), 0
}

// audit logs a command that concerned this node, with its sender, key and parameters: as a warning
// with the failure, or as information if failure is "".
func (s *Server) audit(ctx context.Context, h *head, c *Command, key, failure string) {
	attrs := []slog.Attr{
		slog.String("action", string(c.Do)), slog.String("command_id", h.ID), slog.String("from", h.From), slog.String("key_id", key),
		slog.Any("nodes", c.Nodes), slog.Any("queues", c.Queues),
	}
	switch c.Do {
	case DoScale:
		attrs = append(attrs, slog.Int("workers", c.Workers))
	case DoRateLimit:
		attrs = append(attrs, slog.String("task", c.Task), slog.String("rate", c.Rate))
	case DoRevoke:
		attrs = append(attrs, slog.Any("ids", c.IDs), slog.Bool("terminate", c.Terminate))
	case DoShutdown:
		attrs = append(attrs, slog.Bool("kill", c.Kill))
	}
	level := slog.LevelInfo
	if failure != "" {
		level, attrs = slog.LevelWarn, append(attrs, slog.String("error", failure))
	}
	s.log(ctx, level, "control: command", attrs...)
}

// answer sends a reply in one or more signed parts, on Config.Replies if the sender of the command
// listens to it. It first truncates r to the limits. If it still needs more than maxParts, it sends
// a reply with an error instead. After a failure it logs a warning and sends no further parts.
func (s *Server) answer(ctx context.Context, h *head, r *Reply) {
	node, bus := s.node.NodeID(), s.cfg.Bus
	if h.Replies && s.cfg.Replies != nil && !s.dropsReplies(ctx) {
		bus = s.cfg.Replies
	}
	r.cut()
	data, err := json.Marshal(r)
	if err != nil {
		s.log(ctx, slog.LevelWarn, "control: sending the reply failed", slog.Any("error", err))
		return
	}
	parts := split(string(data))
	if len(parts) > maxParts { // names can be long; the limits of a Reply are about their number
		parts = split(fmt.Sprintf(`{"error":"the reply has %d bytes, which is too large to send"}`, len(data)))
	}
	for i, part := range parts {
		m, err := newMessage(ReplyEvent, head{
			Version: version, ID: h.ID, At: r.At.UnixMilli(), From: node, Part: i, Parts: len(parts),
		}, part)
		if err == nil {
			s.cfg.Keys.sign(m)
			err = bus.Publish(ctx, m.event(node))
		}
		if err != nil {
			s.log(ctx, slog.LevelWarn, "control: sending the reply failed", slog.Any("error", err))
			return
		}
	}
}

// avoidReplies is the time for which replies use the bus for commands after the one for replies has
// dropped some.
const avoidReplies = 5 * time.Minute

// dropsReplies reports whether the bus for replies has dropped any within avoidReplies, and logs
// it. Its server may have been away, or the user may lack the right to it.
func (s *Server) dropsReplies(ctx context.Context) bool {
	d, ok := capability.As[events.DropCounter](s.cfg.Replies)
	if !ok {
		return false
	}
	if n := d.Dropped(); n > s.dropped {
		s.dropped, s.droppedAt = n, time.Now()
		s.log(ctx, slog.LevelWarn, "control: the bus for replies has dropped replies; they use the bus for commands for a while", slog.Duration("while", avoidReplies))
	}
	return time.Since(s.droppedAt) < avoidReplies
}

// log writes a log entry with the node's id.
func (s *Server) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	s.cfg.Logger.LogAttrs(ctx, level, msg, append(attrs, slog.String("node", s.node.NodeID()))...)
}
