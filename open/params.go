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
