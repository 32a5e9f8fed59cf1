package natsresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/naming"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [Config].
const (
	DefaultNamespace = "default"
	DefaultTTL       = task.DefaultResultTTL
	DefaultMaxResult = 15 << 20
	DefaultBuffer    = 16 << 10
)

const (
	maxNamespace = 64
	maxReplicas  = 5
	// maxTTL is far below the range of 64 bits of nanoseconds, so that sums of times do not overflow.
	maxTTL = 100 * 365 * 24 * time.Hour
	// maxRest limits the bytes of a record beside its Result: error texts, names and the correlation.
	maxRest = 1 << 20
)

// Config holds the settings of [New]. Connect is the only required field.
type Config struct {
	// Connect holds the addresses of NATS and how to connect to them.
	Connect natsconnect.Config
	// Namespace is part of the names of stream and subjects: 1 to 64 letters, digits, '_' and '-',
	// the first a letter or a digit. Submitters and consumers must use the same one. "":
	// [DefaultNamespace], "default".
	Namespace string
	// Replicas is the number of servers of a cluster that keep the stream, if this store creates it: 1
	// to 5. With 3 the stream survives the loss of one server. 0: 1.
	Replicas int
	// TTL is the retention of a record whose own TTL is 0. 0: [DefaultTTL], 24 hours. Times above 100
	// years count as 100 years.
	TTL time.Duration
	// MaxResult is the largest Result in bytes. Save returns [resultstore.ErrTooLarge] for a larger
	// one, for a record whose other fields exceed 1 MiB, and for a record above the server's
	// max_payload. 0: [DefaultMaxResult], 15 MiB.
	MaxResult int
	// Buffer is the number of notifications, of at most 64 MiB together, that wait for a slow
	// submitter. Beyond it the newest are lost, and the submitter finds those records with Load. 0:
	// [DefaultBuffer], 16,384.
	Buffer int
	// Logger receives one warning if the server is too old to expire each record separately. Nil:
	// slog.Default().
	Logger *slog.Logger
}

// complete returns c with the default in each field that is 0, "" or a nil Logger, and TTL limited
// to maxTTL. The error joins all problems: negative numbers, Replicas above maxReplicas, an invalid
// Namespace. It does not check Connect.
func (c Config) complete() (Config, error) {
	var errs []error
	negative := func(field string, v int64) {
		if v < 0 {
			errs = append(errs, fmt.Errorf("natsresults: %s is negative", field))
		}
	}
	negative("TTL", int64(c.TTL))
	negative("MaxResult", int64(c.MaxResult))
	negative("Buffer", int64(c.Buffer))
	if c.Replicas < 0 || c.Replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("natsresults: Replicas must be 0 to %d", maxReplicas))
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	// With a '.' two namespaces could share a subject.
	if !naming.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("natsresults: Namespace must be 1 to %d letters, digits, '_' and '-', first a letter or digit", maxNamespace))
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	c.TTL = min(c.TTL, maxTTL)
	if c.MaxResult == 0 {
		c.MaxResult = DefaultMaxResult
	}
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
