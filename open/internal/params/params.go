// Package params reads the URL parameters that several drivers share.
package params

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/open"
)

// The names of the parameters that limit dead letters.
const (
	DeadTTL = "dead_ttl"
	DeadMax = "dead_max"

	// MaxDead is the largest number of dead letters that a URL may allow for a queue.
	MaxDead = 100_000_000
)

// Dead returns the parameters dead_ttl and dead_max in the form that the configurations of brokers
// use: 0 means the default of the broker, -1 means no limit. A missing parameter gives 0, and the
// text "0" gives -1. Returns an error if a value is invalid.
func Dead(t *open.Target) (ttl time.Duration, most int, err error) {
	if text, ok := t.Params[DeadTTL]; ok {
		if ttl, err = time.ParseDuration(text); err != nil || ttl < 0 || ttl > 0 && ttl < time.Second {
			return 0, 0, errors.New("parameter dead_ttl must be how long a dead letter is kept, such as 720h, or 0 for ever")
		}
		if ttl == 0 {
			ttl = -1
		}
	}
	if most, err = Number(t, DeadMax, 0, MaxDead); err == nil && most == 0 && t.Params[DeadMax] != "" {
		most = -1
	}
	return ttl, most, err
}

// Number returns a parameter that is a whole number from least to most, or 0 if it is missing.
// Returns an error if the value is invalid. The error does not quote the value.
func Number(t *open.Target, param string, least, most int) (int, error) {
	text, ok := t.Params[param]
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("parameter %s must be a whole number from %d to %d", param, least, most)
	}
	return n, nil
}
