package open

import (
	"errors"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
)

const (
	paramTimeout    = "timeout"
	paramFailedSize = "failed_size"
	paramHeartbeat  = "heartbeat"
)

// hworkerSchemes: results and events are what Redis at the same address gives, since hworker has neither.
func hworkerSchemes() []scheme {
	var all []scheme
	for _, s := range redisSchemes() {
		if s.name != "redis" && s.name != "rediss" {
			continue
		}
		s.name, s.form = "hworker+"+s.name, "hworker+"+s.form
		s.broker, s.schedule = hworkerBroker, nil
		s.params = []string{paramPoolSize, paramDB, paramTimeout, paramFailedSize, paramHeartbeat}
		redis := s.check
		s.check = func(t *target) error {
			_, wrong := hworkerConfig(t)
			return errors.Join(redis(t), wrong)
		}
		all = append(all, s)
	}
	return all
}

func hworkerBroker(t *target) (broker.Broker, error) {
	cfg, err := hworkerConfig(t)
	if err != nil {
		return nil, err
	}
	return hworkerbroker.New(cfg)
}

// hworkerConfig takes what hworker's own configuration has.
func hworkerConfig(t *target) (cfg hworkerbroker.Config, err error) {
	cfg = hworkerbroker.Config{Redis: t.redis, Logger: t.options.Logger}
	if text, ok := t.params[paramTimeout]; ok {
		if cfg.Timeout, err = time.ParseDuration(text); err != nil || cfg.Timeout < 100*time.Millisecond {
			return cfg, errors.New("parameter timeout must be how long a job may be in progress, such as 2m, at least 100ms")
		}
	}
	if cfg.FailedSize, err = t.number(paramFailedSize, 0, 1, maxDeadMax); err != nil {
		return cfg, err
	}
	if text, ok := t.params[paramHeartbeat]; ok {
		if cfg.Heartbeat, err = strconv.ParseBool(text); err != nil {
			return cfg, errors.New("parameter heartbeat must be true or false")
		}
	}
	return cfg, nil
}
