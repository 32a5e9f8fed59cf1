// Package hworker registers the driver of hworker with package open. A program imports it for this
// effect:
//
//	import _ "github.com/swarmiji/swarmiji/open/hworker"
//
// The schemes are hworker+redis:// and, for TLS, hworker+rediss://. hworker keeps neither results
// nor events nor limits: these use Redis at the same address.
package hworker

import (
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/internal/params"
	"github.com/swarmiji/swarmiji/open/internal/redisparts"
)

func init() { open.Register(Driver{}) }

// Driver constructs the broker of hworker and the other adapters of Redis. The zero value is
// usable. Safe for concurrent use.
type Driver struct{}

const prefix = "hworker+"

const (
	paramTimeout    = "timeout"
	paramFailedSize = "failed_size"
	paramHeartbeat  = "heartbeat"
)

// Schemes implements [open.Driver]. It returns the schemes of hworker, with and without TLS.
func (Driver) Schemes() []open.Scheme {
	s := redisparts.Single()
	s.Name, s.Form = prefix+s.Name, prefix+s.Form
	s.Params = []string{redisparts.ParamPoolSize, redisparts.ParamDB, paramTimeout, paramFailedSize, paramHeartbeat}
	return redisparts.WithTLS(s)
}

// Parts implements [open.Driver]. It returns constructors for all adapters except a job store and a
// schedule store: the broker of hworker, and the other adapters of Redis at the same address. It
// reads certificate files. Returns an error if the URL or a parameter is invalid.
func (Driver) Parts(t *open.Target) (open.Parts, error) {
	parts, at, err := redisparts.New(t)
	if err != nil {
		return open.Parts{}, err
	}
	cfg, err := config(t, at)
	if err != nil {
		return open.Parts{}, err
	}
	parts.Broker = func(string) (broker.Broker, error) { return hworkerbroker.New(cfg) }
	parts.Schedule = nil
	return parts, nil
}

// config returns the configuration of the broker from the parameters timeout, failed_size and
// heartbeat of t. Missing ones stay zero. Returns an error if a parameter is invalid.
func config(t *open.Target, at *redis.UniversalOptions) (cfg hworkerbroker.Config, err error) {
	cfg = hworkerbroker.Config{Redis: at, Logger: t.Logger}
	if text, ok := t.Params[paramTimeout]; ok {
		if cfg.Timeout, err = time.ParseDuration(text); err != nil || cfg.Timeout < 100*time.Millisecond {
			return cfg, errors.New("parameter timeout must be how long a job may be in progress, such as 2m, at least 100ms")
		}
	}
	if cfg.FailedSize, err = params.Number(t, paramFailedSize, 1, params.MaxDead); err != nil {
		return cfg, err
	}
	if text, ok := t.Params[paramHeartbeat]; ok {
		if cfg.Heartbeat, err = strconv.ParseBool(text); err != nil {
			return cfg, errors.New("parameter heartbeat must be true or false")
		}
	}
	return cfg, nil
}
