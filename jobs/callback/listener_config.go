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

// maxBatch limits the bytes of the answers that one transaction stores. A single larger answer is
// stored alone.
const maxBatch = 4 << 20

// ListenerConfig configures a [Listener]. Service, Broker and Queue are required.
type ListenerConfig struct {
	// Service is the service of the jobs, and Broker the broker of the queue. The listener closes
	// neither.
	Service *jobs.Service
	Broker  broker.Broker
	// Queue is the queue of the answers. The listener declares it if the broker requires that.
	Queue string
	// Read converts a message to an answer. It must not change the message. [ErrSkip] acknowledges the
	// message without an answer. After any other error, or a panic, the message is dead-lettered. One
	// goroutine at a time calls it. nil: [ReadMessage].
	Read func(*broker.Message) (jobs.Answer, error)

	// Prefetch limits the number of received messages that are not settled, and so the answers of one
	// transaction. Default: 64. From 1 to 10,000.
	Prefetch int
	// Attempts limits the tries of an answer that the store refuses although it is available. Then the
	// message is dead-lettered. While the store is unavailable, tries do not count. Default: 10.
	Attempts int
	// Timeout limits the time of one transaction. Default: 30 s.
	Timeout time.Duration
	// ShutdownTimeout is the time for storing received answers after Run's context has ended. The
	// other messages are then released. Default: 10 s.
	ShutdownTimeout time.Duration
	// Backoff is the delay between tries while the store is unavailable. Default: up to 100 ms at
	// first, up to 5 s later.
	Backoff task.Backoff

	// OnReport receives problems, which are also logged. One goroutine at a time calls it; it must
	// return quickly. nil: not called.
	OnReport func(Report)
	// Logger logs errors that Run does not return. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults and checks the fields. Returns all problems, joined. Prefetch and
// Attempts must be 1 to 10,000, Timeout and ShutdownTimeout 1 ms to 1 h; 0 means the default.
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

// Problem is the kind of a [Report].
type Problem string

// The problems.
const (
	ProblemUnreadable Problem = "unreadable" // Read cannot decode the message: dead-lettered
	// the service refuses the answer, or the store refused it too often: dead-lettered
	ProblemRefused Problem = "refused"
	// the store refused this answer alone, or another transaction holds its key: tried again later
	ProblemPutBack Problem = "put back"
	// the store does not reply: tried again. Reported once until it replies; Message is nil
	ProblemAway Problem = "away"
)

// Report describes one problem.
type Report struct {
	Problem Problem
	Message *broker.Message
	Answer  jobs.Answer // the answer that Read returned
	Err     error
	// Dropped reports that the broker has no dead letters, so that the message was deleted.
	Dropped bool
}

// ListenerStats contains the counts of a [Listener] since NewListener. An accepted answer may count
// as Duplicate if it was tried again because the store did not reply.
type ListenerStats struct {
	Received   int64 // messages
	Accepted   int64 // answers that jobs or tasks accepted
	Early      int64 // answers that no job awaited yet
	Late       int64 // answers for jobs that were over
	Duplicate  int64 // answers for jobs that already had an answer
	Skipped    int64 // messages for which Read returned ErrSkip
	Unreadable int64 // messages that Read could not decode
	Refused    int64 // answers that the service or the store refused
	Dropped    int64 // those of Unreadable and Refused that the broker could not dead-letter
	PutBack    int64 // releases of a message with a delay, after a refusal of the store
	GivenBack  int64 // messages that were released at a stop
	// messages that the broker took back before their acknowledgement: they come again
	Lost    int64
	Failed  int64 // transactions that failed because the store was unavailable
	Batches int64 // transactions that succeeded
}
