package middleware_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/middleware"
)

// A Backoff says how long to wait before each retry.
func ExampleBackoff() {
	for _, b := range []middleware.Backoff{
		middleware.Constant(time.Second),
		middleware.Linear(time.Second, 3*time.Second),
		middleware.Exponential(time.Second, 10*time.Second),
	} {
		fmt.Println(b(0), b(1), b(2), b(3), b(4))
	}
	jitter := middleware.Jitter(middleware.Constant(time.Minute)) // anything from 0 to that
	fmt.Println(jitter(0) <= time.Minute)
	// Output:
	// 1s 1s 1s 1s 1s
	// 1s 2s 3s 3s 3s
	// 1s 2s 4s 8s 10s
	// true
}
