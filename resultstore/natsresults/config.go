package natsresults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/keyset"
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
	// maxTTL keeps moments far below what 64 bits of nanoseconds hold.
	maxTTL = 100 * 365 * 24 * time.Hour
	// maxRest is how much larger than its Result a record may be: texts of an error, names and the correlation.
	maxRest = 1 << 20
)

// Config of [New]. Connect is the only field that must be set.
type Config struct {
	// Connect says where NATS is and how to reach it.
	Connect natsconnect.Config
	// Namespace is part of the names of stream and subjects: 1 to 64 letters, digits, '_' and '-'. It has to be the same for
	// submitters and consumers. "": [DefaultNamespace], "default".
	Namespace string
	// Replicas is on how many servers of a cluster the stream is kept when this store creates it: 1 to 5. 3 outlives the loss
	// of one. 0: 1.
	Replicas int
	// TTL is how long a record is kept that names no time of its own. 0: [DefaultTTL], 24 hours. Times above 100 years count as
	// 100 years.
	TTL time.Duration
	// MaxResult is the largest Result in bytes; a larger one is refused with [resultstore.ErrTooLarge], as is a record of
	// which the rest is above 1 MiB, and one that is above the server's max_payload. 0: [DefaultMaxResult], 15 MiB.
	MaxResult int
	// Buffer is how many notifications, and at most 64 MiB of them, wait for a submitter that does not read; beyond it the
	// newest are lost, and the submitter finds the records with Load. 0: [DefaultBuffer], 16,384.
	Buffer int
	// Logger is told, once, when the server is too old to remove each record at its time. Nil: slog.Default().
	Logger *slog.Logger
}

// complete returns c with its defaults, and all its problems.
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
	// A '.' would let one namespace's subjects be another's.
	if !keyset.ValidName(c.Namespace) || len(c.Namespace) > maxNamespace || strings.Contains(c.Namespace, ".") {
		errs = append(errs, fmt.Errorf("natsresults: Namespace must be 1 to %d letters, digits, '_' and '-'", maxNamespace))
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
