package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/liveness"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/inspect/internal/claims"
	"github.com/swarmiji/swarmiji/inspect/internal/patience"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	// DefaultListen is a little longer than the time between two heartbeats.
	DefaultListen = 2500 * time.Millisecond
	// fresh limits the age of answers of consumers that are used again.
	fresh = time.Second
	// eachAnswer is the least time from one answer of any consumer to the next, on average.
	eachAnswer = 10 * time.Millisecond
	// maxBody is larger than any message of a broker.
	maxBody = 1 << 30
)

// Config configures [New]. Every part may be missing: a method that needs it returns
// [ErrUnsupported]. Local closes none of the parts.
type Config struct {
	// Broker has the queues and dead letters.
	Broker broker.Broker
	// Results is the result store of the consumers, and Stores are further ones by name.
	Results resultstore.ResultStore
	Stores  map[string]resultstore.ResultStore
	// Events is the bus of the tasks' events and of heartbeats. It also gets the events about changes.
	Events events.EventBus
	// Control sends commands to consumers.
	Control *control.Client
	// Revocations is the bus of revocations, see revoke.RevokerConfig.
	Revocations events.EventBus
	// Audit is another bus, which retains events of the type [AuditEvent] for ListAudit, and no
	// others, see [AuditRetention].
	Audit events.EventBus
	// Schedule is the schedule whose entries are shown.
	Schedule *schedule.Schedule
	// Jobs are the jobs of a database, and the tasks that wait there.
	Jobs *jobs.Service
	// History is the history of tasks, which a recorder writes.
	History history.Store
	// Settings are the stored operations of consumers. Without them PauseQueue pauses only the
	// consumers that run.
	Settings settings.Store
	// Limiter holds the limits over all processes, and Limits the permits of tasks by their names, the
	// same as in limit.Config. Why needs both.
	Limiter limit.Limiter
	Limits  map[string][]limit.Permit
	// Wire configures how messages are read, as in deadletter.Config.
	Wire serializer.Wire
	// Queues are names of queues that are always shown.
	Queues []string
	// NodeID is the name of this process in events. Default: made from host, process and a random
	// number.
	NodeID string
	// Actor is the name of the caller if the context has no name, see [WithActor]. Default: NodeID.
	Actor string
	// Listen limits how long a method waits for answers and heartbeats of consumers. Default:
	// [DefaultListen], 2.5 s. While [Local.Run] runs, methods wait only for consumers that are known
	// to run.
	Listen time.Duration
	// Replies is the number of answers after which a method waits no longer. 0: it waits for Listen.
	Replies int
	// Logger gets warnings that no method returns, and each change. Default: slog.Default().
	Logger *slog.Logger
}

// Local is the [API] over the parts of a [Config], in this process. Make one with [New]. Safe for
// concurrent use.
type Local struct {
	cfg     Config
	codec   *wire.Codec
	letters *deadletter.Letters // nil: the broker's dead letters cannot be read
	claims  claims.Claims       // of keys, for all processes if the result store can claim

	asking    chan struct{} // holds a token while a goroutine asks the consumers
	mu        sync.Mutex
	last      *census            // of the consumers; nil: not asked yet
	forgotten int                // calls of forget
	shown     patience.Consumers // what questions have shown of consumers
	watch     *liveness.Observer // nil: Run does not run
	since     time.Time          // when Run began
	events    *eventTail         // nil: Run does not run
	tail      *auditTail         // nil: Run does not run
	ran       atomic.Bool
}

var _ API = (*Local)(nil)

// New returns a Local. It does no I/O. Its error joins all problems of the configuration.
func New(c Config) (*Local, error) {
	var errs []error
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	} else if err := task.CheckName(c.NodeID); err != nil {
		errs = append(errs, fmt.Errorf("inspect: NodeID: %w", err))
	}
	if c.Actor == "" {
		c.Actor = c.NodeID
	}
	if c.Listen < 0 || c.Replies < 0 {
		errs = append(errs, fmt.Errorf("inspect: Listen is %v and Replies %d", c.Listen, c.Replies))
	}
	if c.Listen == 0 {
		c.Listen = DefaultListen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, q := range c.Queues {
		if err := task.CheckName(q); err != nil {
			errs = append(errs, fmt.Errorf("inspect: Queues: %w", err))
		}
	}
	c.Stores, c.Limits, c.Queues = maps.Clone(c.Stores), maps.Clone(c.Limits), slices.Clone(c.Queues)
	l := &Local{cfg: c, claims: &claims.Local{}, asking: make(chan struct{}, 1)}
	if shared := resultstore.ClaimerOf(nil, c.Results); shared != nil {
		l.claims = shared
	}
	w := c.Wire
	w.QueueFormats, w.AcceptPlain, w.MaxBody = nil, true, maxBody
	codec, err := wire.New(w)
	if err != nil {
		errs = append(errs, fmt.Errorf("inspect: %w", err))
	}
	l.codec = codec
	if c.Broker != nil {
		l.letters, err = deadletter.New(l.deadConfig())
		if err != nil && !errors.Is(err, broker.ErrUnsupported) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("inspect: Run was called before")

// Run keeps the list of workers current and the newest events in memory, until ctx ends, and then
// returns nil. It is for processes that live longer than one question, such as dashboards. Without
// it, methods listen for Config.Listen each time, and ListEvents is unsupported.
//
// Returns [ErrRunning] if it was called before, an error without Config.Events, and the error of
// the bus.
func (l *Local) Run(ctx context.Context) error {
	if l.cfg.Events == nil {
		return missing("events", needEvents)
	}
	if !l.ran.CompareAndSwap(false, true) {
		return ErrRunning
	}
	observer, err := liveness.New(liveness.Config{Bus: l.cfg.Events, Silent: true, Logger: l.cfg.Logger})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := make(chan struct{})
	tail, audit := newEventTail(l.cfg.Logger), newAuditTail(sync.OnceFunc(func() { close(wanted) }))
	l.mu.Lock()
	l.watch, l.events, l.tail, l.since = observer, tail, audit, time.Now()
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.watch, l.events, l.tail = nil, nil, nil
		l.mu.Unlock()
		tail.Close()
	}()
	var following sync.WaitGroup
	following.Go(func() { audit.follow(ctx, wanted, l.cfg.Audit) })
	defer following.Wait()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- tail.fill(ctx, l.cfg.Events)
	}()
	err = observer.Run(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// Settings that help where a part is missing.
const (
	needBroker   = "set inspect.Config.Broker; on the command line give --broker"
	needResults  = "set inspect.Config.Results; on the command line give --broker"
	needEvents   = "set inspect.Config.Events; the URL of the broker can name another bus with events="
	needControl  = "set inspect.Config.Control; consumers answer with open.Options.Control and consumer.Config.Control"
	needRevoke   = "set inspect.Config.Revocations, such as open.Swarm.Revocations"
	needSchedule = "set inspect.Config.Schedule; on the command line give --schedule-store"
	needJobs     = "set inspect.Config.Jobs; on the command line give --jobs"
	needAudit    = "set inspect.Config.Audit to a bus that retains events, such as open.Swarm.Audit"
	needHistory  = "set inspect.Config.History to the store of a history"
	needSettings = "set inspect.Config.Settings, and consumer.Config.Settings of the consumers"
	needRun      = "call Run of inspect.Local in a goroutine"
)
