// Package redis registers the driver of Redis with package open. A program imports it for this
// effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/redis"
//
// The schemes are redis://, redis-cluster:// and redis-sentinel://, and the same schemes with
// rediss for TLS.
package redis

import (
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/redisparts"
)

func init() { open.Register(Driver{}) }

// Driver constructs the adapters of Redis. The zero value is usable. Safe for concurrent use.
type Driver struct{}

// Schemes implements [open.Driver]. It returns the schemes of Redis, with and without TLS.
func (Driver) Schemes() []open.Scheme { return redisparts.Schemes() }

// Parts implements [open.Driver]. It returns constructors for all adapters except a job store. It
// reads certificate files. Returns an error if the URL or a parameter is invalid.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	parts, _, err := redisparts.New(t)
	return parts, err
}
