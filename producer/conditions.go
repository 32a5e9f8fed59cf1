package producer

import (
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
)

// errNoJobs refuses conditions that nobody could keep.
var errNoJobs = fmt.Errorf("%w: a sequence key, unique key, weight, windows or throttle need a store of jobs", broker.ErrUnsupported)

// errStepConditions refuses conditions in workflows: what follows a step travels in its message, past every producer.
var errStepConditions = fmt.Errorf("%w: a step of a workflow has no conditions: have its handler submit the task that has them", broker.ErrUnsupported)
