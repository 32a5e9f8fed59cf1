package broker

import (
	"fmt"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// CheckFairness returns [ErrMalformed] if the Key of m is not valid or its Weight is not 0 to 100.
// A broker calls it before it stores m.
func CheckFairness(m *Message) error {
	switch {
	case !naming.ValidKey(m.Key):
		return fmt.Errorf("%w: the fairness key is not at most %d bytes of UTF-8 without control characters", ErrMalformed, naming.MaxKey)
	case m.Weight < 0 || m.Weight > naming.MaxWeight:
		return fmt.Errorf("%w: the fairness weight %d is not 0 to %d", ErrMalformed, m.Weight, naming.MaxWeight)
	}
	return nil
}
