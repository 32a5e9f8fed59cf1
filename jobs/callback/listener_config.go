package callback

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// The defaults of [ListenerConfig].
const (
	DefaultPrefetch        = 64
	DefaultAttempts        = 10
	DefaultShutdownTimeout = 10 * time.Second
)

// maxBatch is how many bytes of answers are written together, but for a single larger one.
const maxBatch = 4 << 20

// ListenerConfig configures a [Listener]. Service, Broker and Queue must be set.
type ListenerConfig struct {
	// Service has the jobs, and Broker the queue. The listener closes neither.
	Service *jobs.Service
	Broker  broker.Broker
	// Queue is where the answers come. It is declared, where the broker wants that.
	Queue string
	// Read makes an answer of a message, which it must not change. [ErrSkip] has the message be acknowledged and nothing be answered; after any other error, or a panic, it is
	// buried. It is called from one goroutine. nil: [ReadMessage].
	Read func(*broker.Message) (jobs.Answer, error)

	// Prefetch is how many messages may be held, and so how many answers are written in one transaction at most. 0: 64. From 1 to 10,000.
	Prefetch int
	// Attempts is how often an answer is tried that the store refuses for a reason of its own while it is there; then the message is buried. Where the store is away there is no such
	// limit. 0: 10.
	Attempts int
	// Timeout is how long one transaction may take. 0: 30 s.
	Timeout time.Duration
	// ShutdownTimeout is how long the answers that were received may still be written after Run's context has ended. What is not written by then goes back. 0: 10 s.
	ShutdownTimeout time.Duration
	// Backoff is between attempts while the store is away. Zero: up to 100 ms at first, up to 5 s in the end.
	Backoff task.Backoff

	// OnReport is told of what went wrong, besides the Logger. It is called from one goroutine, and must be quick. nil: nobody.
	OnReport func(Report)
	// Logger is told of what Run does not return. nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *ListenerConfig) check() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("callback: ListenerConfig.Service is not set"))
	}
	if c.Broker == nil {
		errs = append(errs, errors.New("callback: ListenerConfig.Broker is not set"))
	}
	if c.Queue == "" {
		errs = append(errs, errors.New("callback: ListenerConfig.Queue is not set"))
	}
	if c.Read == nil {
		c.Read = ReadMessage
	}
	for _, n := range []struct {
		name string
		is   *int
		def  int
	}{{"Prefetch", &c.Prefetch, DefaultPrefetch}, {"Attempts", &c.Attempts, DefaultAttempts}} {
		if *n.is == 0 {
			*n.is = n.def
		}
		if *n.is < 1 || *n.is > 10_000 {
			errs = append(errs, fmt.Errorf("callback: ListenerConfig.%s is %d, not 1 to 10000", n.name, *n.is))
		}
	}
	errs = append(errs,
		bounded("ListenerConfig.Timeout", &c.Timeout, DefaultTimeout, time.Millisecond, time.Hour),
		bounded("ListenerConfig.ShutdownTimeout", &c.ShutdownTimeout, DefaultShutdownTimeout, time.Millisecond, time.Hour))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// Problem is what a [Report] is about.
type Problem string

// The problems.
const (
	ProblemUnreadable Problem = "unreadable" // Read cannot make an answer of the message: it is buried
	ProblemRefused    Problem = "refused"    // the service does not take the answer, or the store refused it too often: the message is buried
	ProblemPutBack    Problem = "put back"   // the store refused the answer and not others: it is tried again later
	ProblemAway       Problem = "away"       // the store gives no answer: the messages are held, and tried again. Told once until it is there again; Message is nil
)

// Report is one thing that went wrong.
type Report struct {
	Problem Problem
	Message *broker.Message
	Answer  jobs.Answer // what Read made of the message
	Err     error
	// Dropped: the broker has no dead letters, so that the message is gone.
	Dropped bool
}

// ListenerStats count what a [Listener] has done since it was made. An answer that was tried again after the store had given no answer may count as Duplicate, although it was accepted.
type ListenerStats struct {
	Received   int64 // messages
	Accepted   int64 // answers that jobs have got
	Early      int64 // answers that no job awaited yet
	Late       int64 // answers to jobs that were over
	Duplicate  int64 // answers to jobs that had one
	Skipped    int64 // messages of which Read said that they are no answers
	Unreadable int64 // messages of which Read could make nothing
	Refused    int64 // answers that were not taken
	Dropped    int64 // messages, among Unreadable and Refused, that the broker could not bury
	PutBack    int64 // times that an answer the store had refused was put back, to be tried later
	GivenBack  int64 // messages that were given back at a stop
	Lost       int64 // messages that the broker took back before they were acknowledged: they come again
	Failed     int64 // transactions that failed because the store was away
	Batches    int64 // transactions that did not
}
