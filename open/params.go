package open

import (
	"errors"
	"time"
)

// setRetain sets t.retain, the retention of events, from the options and the parameter retain.
// Returns an error if the parameter is not a duration of at least 1 ms or differs from the options.
func (t *target) setRetain() error {
	t.retain = t.options.Retain
	text, ok := t.Params[paramRetain]
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
