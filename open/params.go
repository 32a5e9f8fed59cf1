package open

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// setRetain sets which events are kept, from the options and the parameter.
func (t *target) setRetain() error {
	t.retain = t.options.Retain
	text, ok := t.params[paramRetain]
	if !ok {
		return nil
	}
	age, err := time.ParseDuration(text)
	switch {
	case err != nil || age < time.Millisecond:
		return errors.New("parameter retain must be how long events are kept, such as 10m")
	case t.retain.Age != 0 && t.retain.Age != age:
		return errors.New("the URL's retain differs from the age of the options; give one of them")
	}
	t.retain.Age = age
	return nil
}

const (
	paramDeadTTL = "dead_ttl"
	paramDeadMax = "dead_max"

	maxDeadMax = 100_000_000
)

// deadBounds returns how long a dead letter is kept and how many a queue keeps, as the
// configurations of brokers take them.
func (t *target) deadBounds() (ttl time.Duration, most int, err error) {
	if text, ok := t.params[paramDeadTTL]; ok {
		if ttl, err = time.ParseDuration(text); err != nil || ttl < 0 || ttl > 0 && ttl < time.Second {
			return 0, 0, errors.New("parameter dead_ttl must be how long a dead letter is kept, such as 720h, or 0 for ever")
		}
		if ttl == 0 {
			ttl = -1
		}
	}
	if most, err = t.number(paramDeadMax, 0, 0, maxDeadMax); err == nil && most == 0 && t.params[paramDeadMax] != "" {
		most = -1
	}
	return ttl, most, err
}

// number returns a parameter that is a whole number from least to most, and otherwise where it is not given. The error does
// not quote the value.
func (t *target) number(param string, otherwise, least, most int) (int, error) {
	text, ok := t.params[param]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("parameter %s must be a whole number from %d to %d", param, least, most)
	}
	return n, nil
}
