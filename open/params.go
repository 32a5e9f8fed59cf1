package open

import (
	"fmt"
	"strconv"
)

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
